"""Clock of the host's and the device's progress."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hpu_core.distributed.failure_detection import Heartbeat, Progress
from hpu_core.distributed.step_clock import StepClock


class _Event:
    """Event of a device whose work a test finishes."""

    def __init__(self) -> None:
        self.is_finished = False

    def record(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return whether the device has finished."""
        return self.is_finished


def _automatic(clock: StepClock) -> None:
    """Train a batch as the Trainer does: the optimizer's step calls the closure."""
    with clock.scope("optimizer step"):
        _accumulate(clock)


def _accumulate(clock: StepClock) -> None:
    with clock.scope("training step"):
        pass
    with clock.scope("backward"):
        pass


def _manual(clock: StepClock) -> None:
    """Train a batch with two optimizers."""
    with clock.scope("training step"):
        for _ in range(2):
            with clock.scope("backward"):
                pass
            with clock.scope("optimizer step"):
                pass


def _evaluate_with_fabric(clock: StepClock) -> None:
    with clock.scope("evaluation forward"):
        pass


def _evaluate(clock: StepClock) -> None:
    with clock.scope("evaluation step"):
        pass


@pytest.mark.parametrize(
    ("calls", "place", "recorded"),
    [
        ([_automatic, _automatic], (2, 0, 0), 2),
        ([_accumulate, _accumulate], (0, 2, 2), 2),
        ([_accumulate, _automatic], (1, 0, 0), 2),
        ([_manual], (2, 0, 0), 1),
        ([_automatic, _evaluate, _evaluate], (1, 0, 0), 3),
        ([_automatic, _evaluate_with_fabric], (1, 0, 0), 1),
    ],
    ids=["automatic", "without an optimizer", "accumulation", "two optimizers", "evaluation", "evaluation with Fabric"],
)
def test_steps_are_counted_and_an_event_follows_the_outermost_scope(
    calls: list[Callable[[StepClock], None]], place: tuple[int, int, int], recorded: int
) -> None:
    """Not a forward pass alone: in lazy mode, an event ends its graph."""
    clock = StepClock(_Event)
    for call in calls:
        call(clock)

    assert (clock.progress.place, clock.progress.scope, clock.progress.recorded) == (place, 0, recorded)


def test_inside_a_step_of_training_the_host_is_further_than_between_steps() -> None:
    clock = StepClock()
    places = [clock.progress.place]
    # Ranks may evaluate different numbers of batches.
    with clock.scope("evaluation step"):
        places.append(clock.progress.place)
    with clock.scope("training step"):
        places.append(clock.progress.place)
    with clock.scope("backward"):
        places.append(clock.progress.place)
    with clock.scope("optimizer step"):
        places.append(clock.progress.place)
    places.append(clock.progress.place)

    assert places == [(0, 0, 0), (0, 0, 0), (0, 1, 1), (0, 1, 2), (0, 1, 2), (1, 0, 0)]


def test_a_backward_pass_alone_is_a_batch() -> None:
    """A program of Fabric may compute its loss without a module of Fabric's."""
    clock = StepClock()
    for _ in range(2):
        with clock.scope("backward"):
            pass

    assert clock.progress.place == (0, 2, 2)


def test_a_wait_that_is_interrupted_is_counted() -> None:
    """Python raises a KeyboardInterrupt when the call has ended."""
    clock = StepClock()
    with pytest.raises(KeyboardInterrupt), clock.wait("all-gather"):
        raise KeyboardInterrupt

    assert clock.progress.waits == 1


def test_what_fails_is_not_counted() -> None:
    clock = StepClock()
    with pytest.raises(KeyError), clock.scope("optimizer step"), clock.scope("training step"):
        raise KeyError
    with pytest.raises(KeyError), clock.wait("barrier"):
        raise KeyError

    assert (clock.progress.place, clock.progress.scope, clock.progress.waits) == ((0, 0, 0), 0, 0)


def test_events_finish_in_order() -> None:
    made: list[_Event] = []

    def make() -> _Event:
        made.append(_Event())
        return made[-1]

    clock = StepClock(make)
    for _ in range(3):
        clock.record()
    before = clock.progress
    made[0].is_finished = made[2].is_finished = True
    clock.query_events()
    between = clock.progress
    made[1].is_finished = True
    clock.query_events()

    assert [each.finished for each in (before, between, clock.progress)] == [0, 1, 3]
    assert [each.is_pending for each in (before, between, clock.progress)] == [True, True, False]


def test_a_device_that_refuses_events_ends_no_training() -> None:
    def refuse() -> _Event:
        raise RuntimeError("no device")

    clock = StepClock(refuse)
    _automatic(clock)

    assert not clock.progress.is_pending
    assert not clock.record()


def test_the_line_of_the_program_is_that_of_the_training_thread() -> None:
    clock, is_in, may_end = StepClock(), threading.Event(), threading.Event()

    def train() -> None:
        with clock.scope("training step"):
            is_in.set()
            may_end.wait(60)

    thread = threading.Thread(target=train)
    thread.start()
    is_in.wait(60)
    call, line = clock.find_call()
    places = set()
    for _ in range(3):
        clock.record_activity()
        places.add(clock["instruction"])
    may_end.set()
    thread.join()

    assert call is None
    assert str(line).startswith("test_step_clock.py:")
    assert str(line).endswith(" in train")
    assert len(places) == 1


def test_a_function_of_torch_distributed_is_named() -> None:
    """Also one that the program calls itself: defect A2."""
    clock = StepClock()
    lock = threading.Lock()
    lock.acquire()
    namespace = {"__name__": "torch.distributed.distributed_c10d", "lock": lock}
    code = compile("def all_reduce():\n    lock.acquire(timeout=60)\n", "/opt/torch/distributed_c10d.py", "exec")
    exec(code, namespace)  # noqa: S102 - a function of that module, which need not be where Python's other modules are.
    logger: dict[str, Any] = {"__name__": "torch.distributed.c10d_logger"}
    exec("def wrapper(function):\n    function()\n", logger)  # noqa: S102 - as torch wraps it.

    def train() -> None:
        with clock.wait("barrier"):
            logger["wrapper"](namespace["all_reduce"])

    thread = threading.Thread(target=train)
    thread.start()
    deadline = time.monotonic() + 60
    while clock.find_call()[0] is None and time.monotonic() < deadline:
        time.sleep(0.01)
    call, line = clock.find_call()
    lock.release()
    thread.join()

    assert call == "all_reduce"
    assert str(line).endswith(" in train")


def test_a_new_clock_has_no_progress() -> None:
    assert StepClock().progress == Progress()


def test_what_is_sent_is_read_as_it_was() -> None:
    clock, heartbeat = StepClock(), Heartbeat(error="ValueError: " + "x" * 2000, waiting=(3, 0))
    clock.from_rank.write(Heartbeat(training=True))
    clock.from_rank.write(heartbeat)

    assert clock.from_rank.read() == heartbeat
    assert clock.from_guard.read() == Heartbeat()


def test_what_is_sent_again_is_not_read_again() -> None:
    clock = StepClock()
    clock.from_rank.write(Heartbeat(run=1))
    version = clock.from_rank.version
    clock.from_rank.write(Heartbeat(run=1))

    assert clock.from_rank.version == version


def test_what_changes_is_read_as_it_was_before() -> None:
    """Another process may write at any moment."""
    clock = StepClock()
    clock.from_rank.write(Heartbeat(run=1))
    first = clock.from_rank.read()
    clock.from_rank._cells[0] += 1

    assert clock.from_rank.read() == first == Heartbeat(run=1)


def test_a_handler_sends_signals() -> None:
    clock = StepClock()
    for signum in (15, 10):
        clock["signals"] |= 1 << signum
    clock.notify_guard()

    assert clock.signals == (10, 15)
    assert os.read(clock.wakeup_reader, 9) == b"\0"


def test_a_guard_that_does_not_read_blocks_no_rank() -> None:
    clock = StepClock()
    for _ in range(70_000):
        clock.notify_guard()
