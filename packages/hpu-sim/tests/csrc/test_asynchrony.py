"""csrc/stream.cpp, guard.cpp and hccl.cpp: what holds the host on an asynchronous device, call by call.

The calls and the modes are those of the bridge 1.19's source.
"""

from __future__ import annotations

import sys
import threading
import types
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.core import mark_step
from habana_frameworks.torch.distributed import hccl
from habana_frameworks.torch.hpu._until_torch_2_3 import HostEvent, HostStream

from hpu_sim.device import runtime
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Public in torch.distributed, but not exported for type checkers.
    from torch._C._distributed_c10d import HashStore
else:
    from torch.distributed import HashStore

pytestmark = pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")

_LIMIT: Final = 120.0
# Long enough for a call that does not wait to return, on an idle machine.
_MOMENT: Final = 0.05


@pytest.fixture(params=["eager", "lazy"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with HPU_SIM_ASYNC=1 in each mode."""
    machine = runtime.active_config()
    native().configure(machine.devices, request.param == "lazy", runtime.acquire_device)
    native().set_execution_mode("later")
    yield request.param
    native().synchronize()
    native().set_execution_mode("now")
    native().configure(machine.devices, machine.lazy, runtime.acquire_device)


def _rank(store: HashStore, rank: int) -> Any:
    """Return a rank of a process group of two, both in this process."""
    options = types.SimpleNamespace(store=store, group_rank=rank, group_size=2)
    return hccl._create_process_group(options)


class _Call:
    """A call on a thread of its own."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._outcome: list[object] = []
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], object]) -> None:
        try:
            self._outcome.append(function())
        except RuntimeError as error:
            self._outcome.append(error)

    def is_held(self) -> bool:
        self._thread.join(_MOMENT)
        return self._thread.is_alive()

    def outcome(self) -> object:
        """Return the result, or the error that was raised."""
        self._thread.join(_LIMIT)
        assert self._outcome, "the call has not returned"
        return self._outcome[0]


class _Group:
    """A process group of two, of which the second rank comes late."""

    def __init__(self) -> None:
        store = HashStore()
        self.x, self._y = torch.ones(2, device="hpu"), torch.ones(2, device="hpu")
        self.first, self._second = _rank(store, 0), _rank(store, 1)
        self._works: list[Any] = []

    def reduce(self) -> Any:
        """Launch an all-reduce of `x` on the first rank, which ends when the second one has come."""
        return self.first.allreduce([self.x])

    def connect(self) -> None:
        """Make the communicator, for which a rank waits in its call in lazy mode."""
        zeros = [torch.zeros(1, device="hpu") for _ in range(2)]
        native().synchronize()
        first = _Call(lambda: self.first.allreduce(zeros[:1]).wait())
        with hpu.stream(hpu.Stream()):
            self._second.allreduce(zeros[1:])
        first.outcome()
        native().synchronize()

    def come(self, collective: str = "allreduce") -> None:
        """Let the second rank launch a collective, beside all other work, unless it has."""
        if not self._works:
            with hpu.stream(hpu.Stream()):
                arguments = ([self._y],) if collective == "allreduce" else ()
                self._works.append(getattr(self._second, collective)(*arguments))


class _Held:
    """A device whose default stream waits for a rank that has not come.

    Attributes:
        x: Tensor of the device with two elements, which are 2 once the device goes on.
        work: Work of the collective.
        event: Event that was recorded after it.
        older: Event as with torch before 2.4, recorded at the same place.
    """

    def __init__(self) -> None:
        self._group = _Group()
        self._group.connect()
        self.x = self._group.x
        self.leaf = torch.ones(2, device="hpu", requires_grad=True)
        self.source = torch.ones(2).pin_memory()
        self.start = hpu.Event(enable_timing=True)
        self.start.record()
        self.work = self._group.reduce()
        self.work.wait()
        self.event = hpu.Event(enable_timing=True)
        self.event.record()
        self.older = HostEvent(enable_timing=True)
        self.older.record()

    def go_on(self) -> None:
        """Let the other rank come."""
        self._group.come()


@pytest.fixture
def held(mode: str) -> Iterator[_Held]:
    """Return a held device, which goes on after the test."""
    native().synchronize()
    device = _Held()
    yield device
    device.go_on()
    native().synchronize()


def _backward(device: _Held) -> bool:
    (device.leaf * device.x).sum().backward()
    torch.optim.SGD([device.leaf], lr=0.1).step()
    return device.leaf.grad is not None


def _side(device: _Held) -> None:
    side = hpu.Stream()
    side.wait_stream(hpu.default_stream())
    side.wait_event(device.event)


def _older_stream(stream_id: int) -> HostStream:
    return HostStream(stream_id=stream_id, device_index=0, device_type=native().device_type())


def _older_side(device: _Held) -> HostStream:
    """Return a stream as with torch before 2.4, which waits for the default stream."""
    side = _older_stream(hpu.Stream().stream_id)
    side.wait_stream(hpu.default_stream())
    side.wait_event(device.older)
    return side


def _run_ahead(device: _Held) -> None:
    for _ in range(2000):
        device.x.mul_(1)


# Calls that return although the device is held, and what they return; None where that does not matter.
_RETURNING: Final[dict[str, tuple[Callable[[_Held], object], object]]] = {
    "operators, without a limit": (_run_ahead, None),
    "backward and the optimizer": (_backward, True),
    "mark_step": (lambda _: mark_step(), None),
    "copy to the host that does not block": (lambda held: held.x.to("cpu", non_blocking=True).tolist(), None),
    "copy to the device": (lambda _: torch.ones(2).to("hpu"), None),
    "copy to the device that does not block": (lambda held: held.source.to("hpu", non_blocking=True), None),
    "Work.wait": (lambda held: held.work.wait(), True),
    "Work.synchronize": (lambda held: held.work.synchronize(), None),
    "Work.is_completed": (lambda held: held.work.is_completed(), True),
    "Work.is_success": (lambda held: held.work.is_success(), True),
    "Work.get_future": (lambda held: len(held.work.get_future().wait()), 1),
    "Event.record": (lambda _: hpu.Event().record(), None),
    "Event.query": (lambda held: held.event.query(), False),
    "Event.query before record": (lambda _: hpu.Event().query(), True),
    "Stream.query": (lambda _: hpu.default_stream().query(), False),
    "Stream.query of an idle stream": (lambda _: hpu.Stream().query(), True),
    "waits of a stream": (_side, None),
    "Event.query, torch before 2.4": (lambda held: held.older.query(), False),
    "Event.query before record, torch before 2.4": (lambda _: HostEvent().query(), True),
    "Stream.query, torch before 2.4": (lambda _: _older_stream(0).query(), False),
    "waits of a stream, torch before 2.4": (lambda held: _older_side(held).query(), False),
    "manual_seed": (lambda _: torch.manual_seed(0), None),
    "memory_stats": (lambda _: hpu.memory_allocated() > 0, True),
}

# Calls that wait for the device, and what they return then.
_WAITING: Final[dict[str, tuple[Callable[[_Held], object], object]]] = {
    "item": (lambda held: held.x[0].item(), 2.0),
    "cpu": (lambda held: held.x.cpu().tolist(), [2.0, 2.0]),
    "print": (lambda held: repr(held.x), "tensor([2., 2.], device='hpu:0')"),
    "branch": (lambda held: 1 if held.x[0] > 1 else 0, 1),
    "shape that depends on data": (lambda held: tuple(held.x.nonzero().shape), (2, 1)),
    "comparison": (lambda held: torch.equal(held.x, held.x + 0), True),
    "operator of the CPU": (lambda held: held.x.digamma().shape, (2,)),
    "Event.synchronize": (lambda held: held.event.synchronize(), None),
    "Event.synchronize, torch before 2.4": (lambda held: held.older.synchronize(), None),
    "Stream.synchronize, torch before 2.4": (lambda held: _older_side(held).synchronize(), None),
}


@pytest.mark.parametrize("call", _RETURNING)
def test_a_call_returns_although_the_device_is_held(call: str, held: _Held) -> None:
    function, expected = _RETURNING[call]

    outcome = _Call(lambda: function(held)).outcome()

    assert not isinstance(outcome, RuntimeError), outcome
    assert expected is None or outcome == expected
    assert not held.event.query()


@pytest.mark.parametrize("call", _WAITING)
def test_a_call_waits_for_the_device(call: str, held: _Held) -> None:
    function, expected = _WAITING[call]

    running = _Call(lambda: function(held))
    was_held = running.is_held()
    held.go_on()

    assert was_held
    assert running.outcome() == expected


def test_the_time_between_events_needs_both(held: _Held) -> None:
    with pytest.raises(RuntimeError, match="Both events must"):
        held.start.elapsed_time(held.event)
    with pytest.raises(RuntimeError, match="Both events must have happened"):
        held.older.elapsed_time(held.older)


@pytest.mark.usefixtures("mode")
def test_the_time_of_an_event_is_known_once_it_was_waited_for() -> None:
    """At once, whatever the thread of the stream has left to do."""
    start, end = hpu.Event(enable_timing=True), hpu.Event(enable_timing=True)
    for _ in range(100):
        start.record()
        end.record()
        end.synchronize()

        assert start.elapsed_time(end) >= 0


def test_an_event_does_not_cover_a_collective_that_its_stream_does_not_wait_for(mode: str) -> None:
    group, event = _Group(), hpu.Event()
    group.connect()
    work = group.reduce()
    event.record()
    event.synchronize()
    group.come()
    work.wait()

    assert group.x.tolist() == [2, 2]


def test_the_first_collective_of_a_group_waits_for_its_ranks_in_lazy_mode_only(mode: str) -> None:
    group = _Group()
    native().wait_for_device()

    first = _Call(lambda: group.reduce().wait())
    assert first.is_held() if mode == "lazy" else first.outcome()
    group.come()

    assert first.outcome() is True
    assert group.x.tolist() == [2, 2]


@pytest.mark.usefixtures("mode")
def test_a_barrier_waits_in_its_call_for_the_hosts_and_not_for_the_device() -> None:
    group = _Group()

    barrier = _Call(lambda: group.first.barrier().is_completed())
    was_held = barrier.is_held()
    group.come("barrier")

    assert was_held
    assert barrier.outcome() is True


@pytest.mark.usefixtures("mode")
def test_memory_that_is_short_is_waited_for_while_the_device_is_held(
    held: _Held, leave_memory: Callable[[int], None]
) -> None:
    x = torch.ones(2, device="hpu")
    leave_memory(0)

    allocating = _Call(x.exp)
    was_held = allocating.is_held()
    held.go_on()

    assert was_held
    assert isinstance(allocating.outcome(), RuntimeError)


def _launch_for_long() -> hpu.Event:
    """Keep the device busy for a tenth of a second or more, and return an event at the end."""
    x = torch.rand(1_500_000, device="hpu")
    x.sort()
    event = hpu.Event()
    event.record()
    return event


@pytest.mark.usefixtures("mode")
def test_synchronize_keeps_pythons_lock() -> None:
    ticks, stop, interval = [0], threading.Event(), sys.getswitchinterval()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    # Else Python may switch threads before and after the call.
    sys.setswitchinterval(_LIMIT)
    try:
        thread.start()
        _launch_for_long()
        before = ticks[0]
        native().synchronize()
        after = ticks[0]
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()

    assert after == before


@pytest.mark.usefixtures("mode")
def test_a_number_of_the_program_is_released_without_pythons_lock() -> None:
    """Which the main thread keeps meanwhile; its Meta kernel, in Python, has given it a Python object."""
    x = _launch_for_long() and torch.ones(3, device="hpu")
    for number in (1.5, 2.5, 3.5):
        x = x / number
    native().synchronize()

    assert x.tolist() == pytest.approx([1 / (1.5 * 2.5 * 3.5)] * 3)
