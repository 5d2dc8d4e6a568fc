"""csrc/events.cpp: events for a listener, while they happen, and with their times for a profile."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from habana_frameworks.torch import core as htcore

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ids: Final = itertools.count()


@pytest.fixture
def events() -> Iterator[list[tuple[str, str, str, int]]]:
    """What the listener has heard since the test began: kind, operator, detail and bytes."""
    htcore.mark_step()
    heard: list[tuple[str, str, str, int]] = []
    native().set_listener(lambda *event: heard.append(event[:4]))
    yield heard
    native().set_listener(None)


def _kinds(events: list[tuple[str, str, str, int]]) -> list[str]:
    return [kind for kind, *_ in events]


def test_a_wait_names_its_operator(events: list[tuple[str, str, str, int]]) -> None:
    """So that a report can say what to change."""
    torch.empty(1, device="hpu").item()

    assert ("host_sync", "aten::_local_scalar_dense", "", 0) in events


def test_a_copy_to_the_card_tells_its_size(events: list[tuple[str, str, str, int]]) -> None:
    """In bytes."""
    torch.ones(3).to("hpu")

    assert [(detail, size) for kind, _, detail, size in events if kind == "h2d"] == [("Float[3], pageable", 12)]


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_a_copy_tells_of_pinned_memory(events: list[tuple[str, str, str, int]]) -> None:
    """From which a card copies while the host goes on."""
    torch.ones(3).pin_memory().to("hpu")

    assert [detail for kind, _, detail, _ in events if kind == "h2d"] == ["Float[3], pinned"]


def test_a_copy_to_the_host_tells_its_size(events: list[tuple[str, str, str, int]]) -> None:
    """After the wait that it causes."""
    torch.empty(3, device="hpu").cpu()

    assert _kinds(events) == ["host_sync", "d2h"]
    assert events[-1][-1] == 12


def test_a_new_graph_is_a_compilation(events: list[tuple[str, str, str, int]]) -> None:
    """Once; the second time it is known."""
    for _ in range(2):
        torch.empty(31, device="hpu").asinh().acosh().asinh()
        htcore.mark_step()

    assert _kinds(events).count("compilation") == 1
    assert "recompilation" not in _kinds(events)


def test_a_new_shape_is_a_recompilation(events: list[tuple[str, str, str, int]]) -> None:
    """Of operators that were compiled before in this order."""
    for size in (32, 33):
        torch.empty(size, device="hpu").acosh().asinh().acosh()
        htcore.mark_step()

    assert _kinds(events).count("recompilation") == 1


def test_complex_results_are_told(events: list[tuple[str, str, str, int]]) -> None:
    """A card refuses them."""
    torch.fft.rfft(torch.empty(4, device="hpu"))

    assert ("dtype", "complex") in [(kind, detail) for kind, _, detail, _ in events]


def test_float64_is_told_each_time(events: list[tuple[str, str, str, int]]) -> None:
    """A card computes it in float32."""
    x = torch.ones(2, dtype=torch.float64).to("hpu")
    for _ in range(100):
        x.sin()

    assert [(kind, op, detail) for kind, op, detail, _ in events].count(("dtype", "aten::sin", "float64")) == 100


@pytest.mark.parametrize(
    ("operation", "op", "words"),
    [
        (lambda: torch.ones(1, dtype=torch.complex64).to("hpu"), "copy_", "Complex datatype is not supported"),
        (lambda: torch.eye(2, device="hpu").to_sparse(), "to_sparse", "hpu tensors must be dense"),
        (lambda: torch.empty(1, device="hpu:1"), "hpu:1", "habana active device 1 != 0"),
    ],
    ids=["complex numbers", "a sparse result", "another card"],
)
def test_a_refusal_is_told(
    operation: Callable[[], Any], op: str, words: str, events: list[tuple[str, str, str, int]]
) -> None:
    """Before the error, for the program may catch it."""
    with pytest.raises(RuntimeError, match=words):
        operation()

    ((_, told_op, message, _),) = (event for event in events if event[0] == "unsupported")
    assert told_op.endswith(op)
    assert message.startswith(words)


def test_nobody_is_told_anything_after_the_listener_is_gone(events: list[tuple[str, str, str, int]]) -> None:
    """None takes it away."""
    native().set_listener(None)

    torch.empty(1, device="hpu").item()

    assert events == []


@pytest.mark.needs_torch("2.2", "libraries that can be destroyed")
def test_a_recording_keeps_the_names_of_deregistered_operators() -> None:
    """An event owns its name, because the operator may be gone when the recording is stopped."""
    native().start_device_trace()
    names = []
    for _ in range(20):
        library = torch.library.Library(f"hpu_sim_test_trace_{next(_ids)}", "FRAGMENT")
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x + 1, "CPU")
        getattr(torch.ops, library.ns).op(torch.ones(2, device="hpu"))
        names.append(f"{library.ns}::op")
        library._destroy()

    events = native().stop_device_trace()

    assert [name for _, name, *_ in events if name.startswith("hpu_sim_test_trace")] == names
