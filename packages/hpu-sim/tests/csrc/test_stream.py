"""csrc/stream.cpp: a missing wait of the host gives wrong numbers, and streams are ordered by memory."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch import hpu

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")


@pytest.fixture
def asynchronous() -> Iterator[None]:
    """Run the test as with HPU_SIM_ASYNC=1."""
    native().set_execution_mode("later")
    yield
    native().synchronize()
    native().set_execution_mode("now")


@pytest.fixture
def source() -> torch.Tensor:
    """Return three ones in pinned memory."""
    return torch.ones(3).pin_memory()


@pytest.fixture
def target() -> torch.Tensor:
    """Return three zeros in pinned memory."""
    return torch.zeros(3).pin_memory()


_WAITS: Final[dict[str, Callable[[], object]]] = {
    "synchronize": hpu.synchronize,
    "item of another tensor": lambda: torch.zeros(1, device="hpu").item(),
}


def _zeros() -> torch.Tensor:
    """Return three zeros that are there for all streams."""
    x = torch.zeros(3, device="hpu")
    hpu.synchronize()
    return x


# Ways in which the current stream waits for another one.
_STREAM_WAITS: Final[dict[str, Callable[[torch.Stream], object]]] = {
    "for the stream": lambda side: hpu.current_stream().wait_stream(side),
    "for an event of it": lambda side: hpu.current_stream().wait_event(side.record_event()),
    "the event makes it wait": lambda side: side.record_event().wait(hpu.current_stream()),
    "on the host": lambda side: side.synchronize(),
    "on the host, by asking": lambda side: list(iter(side.query, True)),
}


@pytest.mark.usefixtures("asynchronous")
def test_a_copy_to_the_device_reads_a_source_that_was_overwritten_too_early(source: torch.Tensor) -> None:
    x = source.to("hpu", non_blocking=True)
    source.fill_(2)

    assert x.tolist() == [2, 2, 2]


@pytest.mark.usefixtures("asynchronous")
@pytest.mark.parametrize("wait", _WAITS)
def test_a_copy_to_the_device_has_read_its_source_after_a_wait(wait: str, source: torch.Tensor) -> None:
    x = source.to("hpu", non_blocking=True)
    _WAITS[wait]()
    source.fill_(2)

    assert x.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_copies_to_one_target_take_effect_in_order(source: torch.Tensor, target: torch.Tensor) -> None:
    x = torch.empty(3, device="hpu")
    x.copy_(source, non_blocking=True)
    x.copy_(target, non_blocking=True)

    assert x.tolist() == [0, 0, 0]


@pytest.mark.usefixtures("asynchronous")
def test_a_copy_to_pinned_memory_is_not_there_before_a_wait(target: torch.Tensor) -> None:
    x = torch.ones(3, device="hpu")

    target.copy_(x, non_blocking=True)
    x.fill_(5)
    before = target.tolist()
    hpu.synchronize()

    assert before == [0, 0, 0]
    assert target.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_an_event_that_has_passed_makes_a_copy_visible(target: torch.Tensor) -> None:
    target.copy_(torch.ones(3, device="hpu"), non_blocking=True)
    event = hpu.Event()
    event.record()
    while not event.query():
        pass

    assert target.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_a_copy_into_a_tensor_that_then_grows_is_kept(source: torch.Tensor) -> None:
    x = torch.zeros(3, device="hpu")
    x.copy_(source, non_blocking=True)

    x.resize_(6)

    assert x[:3].tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_an_operator_sees_what_another_stream_has_written_before(source: torch.Tensor) -> None:
    """Without a wait: the bridge orders by addresses, and DeepSpeed's `resolves_data_dependency` relies on it."""
    x = _zeros()
    with hpu.stream(hpu.Stream()):
        x.copy_(source, non_blocking=True)
        y = x * 2

    assert (x + y).tolist() == [3, 3, 3]


@pytest.mark.usefixtures("asynchronous")
def test_an_operator_does_not_overwrite_what_another_stream_still_reads() -> None:
    x = torch.rand(500_000, device="hpu")
    expected = x.sort().values.cpu()
    with hpu.stream(hpu.Stream()):
        y = x.sort().values
    x.zero_()

    assert torch.equal(y.cpu(), expected)


@pytest.mark.usefixtures("asynchronous")
@pytest.mark.parametrize("wait", _STREAM_WAITS)
def test_an_operator_of_a_stream_that_waits_sees_the_copy_of_the_other(wait: str, source: torch.Tensor) -> None:
    x, side = _zeros(), hpu.Stream()
    with hpu.stream(side):
        x.copy_(source, non_blocking=True)
    _STREAM_WAITS[wait](side)

    assert (x + 1).tolist() == [2, 2, 2]


@pytest.mark.usefixtures("asynchronous")
def test_an_event_completes_only_what_comes_before_it(source: torch.Tensor, target: torch.Tensor) -> None:
    """Neither later copies of its stream, nor those of other streams."""
    x, event, side = torch.ones(3, device="hpu"), hpu.Event(), hpu.Stream()
    event.record()
    with hpu.stream(side):
        target.copy_(x, non_blocking=True)

    event.synchronize()
    assert event.query()
    assert target.tolist() == [0, 0, 0]
    side.synchronize()
    assert target.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_waiting_is_transitive(source: torch.Tensor) -> None:
    """A stream comes after what the stream that it waits for has waited for."""
    x, first, second = _zeros(), hpu.Stream(), hpu.Stream()
    with hpu.stream(first):
        x.copy_(source, non_blocking=True)
    second.wait_stream(first)

    hpu.current_stream().wait_stream(second)

    assert (x + 1).tolist() == [2, 2, 2]


@pytest.mark.usefixtures("asynchronous")
def test_blocking_copies_are_not_deferred(source: torch.Tensor) -> None:
    x = source.to("hpu")
    source.fill_(2)

    assert x.tolist() == [1, 1, 1]


def test_nothing_is_deferred_by_default(source: torch.Tensor, target: torch.Tensor) -> None:
    x = source.to("hpu", non_blocking=True)
    source.fill_(2)
    target.copy_(x, non_blocking=True)

    assert target.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("asynchronous")
def test_a_copy_of_another_shape_fails_alone(source: torch.Tensor) -> None:
    x = torch.zeros(2, device="hpu")

    with pytest.raises(RuntimeError, match="must match the existing size"):
        x.copy_(source, non_blocking=True)
    assert (x + 1).tolist() == [1, 1]


def test_the_variable_switches_it_on(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """An interrupt then ends the process without any handler, as with the bridge."""
    program = """
    import os
    import signal
    import torch
    source = torch.ones(1).pin_memory()
    x = source.to("hpu", non_blocking=True)
    source.fill_(2)
    print(x.item(), flush=True)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
    """

    done = run_python(program, HPU_SIM_DEVICES="1", HPU_SIM_ASYNC="1")

    assert (done.stdout.splitlines()[-1], done.returncode) == ("2.0", 128 + signal.SIGINT)
