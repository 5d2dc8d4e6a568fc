"""From the device's events to what a reader wants to know."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import core as htcore
from torch import nn

from hpu_sim.report import event_aggregator as module
from hpu_sim.report.event_aggregator import EventAggregator
from hpu_sim.runtime import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_sim.report.schema import Site


class _Listener:
    """A recorder that hears the device."""

    def __init__(self) -> None:
        self.aggregator = EventAggregator()
        htcore.mark_step()
        native().set_listener(self._on_event)

    def _on_event(self, kind: str, op: str, detail: str, size: int) -> None:
        self.aggregator.on_event(kind, op, detail, size, sys._getframe().f_back)

    def site(self, kind: str, variant: str = "") -> Site:
        """Return the only site of a kind and, if given, a variant."""
        (site,) = [each for each in self.aggregator.sites() if each.kind == kind and variant in {"", each.variant}]
        return site


@pytest.fixture
def listener() -> Iterator[_Listener]:
    """A recorder that hears what the test makes the device do."""
    listener = _Listener()
    yield listener
    native().set_listener(None)
    assert listener.aggregator.recording_error is None


def _line() -> int:
    return sys._getframe(1).f_lineno


def _place(site: Site) -> tuple[str, int]:
    assert site.frame is not None
    return site.frame.file, site.frame.line


def test_a_host_sync_has_the_line_that_asked_for_it(listener: _Listener) -> None:
    """Not that of the library that it called."""
    x = torch.ones(3, device="hpu")
    print(x)  # noqa: T201 - the device is what listens
    line = _line() - 1

    sites = [site for site in listener.aggregator.sites() if site.kind == "host_sync"]
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_copies_say_how_much(listener: _Listener) -> None:
    """Both ways."""
    torch.ones(3, 4).to("hpu").cpu()

    pageable = listener.site("h2d", "pageable")
    assert (pageable.bytes, pageable.examples) == (48, ("float32[3, 4]",))
    assert listener.site("d2h").bytes == 48


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_copies_from_pinned_memory_are_told_apart(listener: _Listener) -> None:
    """They do not hold up the host."""
    torch.ones(5).pin_memory().to("hpu", non_blocking=True)

    pinned = listener.site("h2d", "pinned")
    assert (pinned.bytes, pinned.examples) == (20, ("float32[5]",))


def test_a_recompilation_names_the_operator_and_its_old_and_new_inputs(listener: _Listener) -> None:
    """The line is that of the operator, though the graph closes elsewhere."""
    for length in (3, 4):
        x = torch.zeros(length, 2, device="hpu")
        htcore.mark_step()
        x.mul(2)
        line = _line() - 1
        htcore.mark_step()

    compilation = listener.aggregator.compilations[-1]
    assert (compilation.op, compilation.is_recompile, compilation.reason) == ("aten::mul", True, "shapes")
    assert (compilation.old_inputs, compilation.new_inputs) == ("float32[3, 2]", "float32[4, 2]")
    assert compilation.frame is not None
    assert compilation.frame.line == line


def test_a_graph_of_new_operators_is_no_recompilation(listener: _Listener) -> None:
    """It has to be compiled all the same."""
    x = torch.zeros(3, device="hpu")
    htcore.mark_step()
    # An operator that no other test begins a graph with: the device keeps its graphs as long as the process lives.
    x.lgamma().add(1).sub(7)
    htcore.mark_step()

    last = listener.aggregator.compilations[-1]
    assert (last.is_recompile, last.reason, last.old_inputs) == (False, "operators", "")


def test_a_graph_that_ends_earlier_than_before_is_where_it_ended(listener: _Listener) -> None:
    """No operator differs."""
    x = torch.zeros(6, 1, device="hpu")
    htcore.mark_step()
    x.neg().abs().neg().abs()
    htcore.mark_step()
    x.neg().abs().neg()
    htcore.mark_step()
    line = _line() - 1

    last = listener.aggregator.compilations[-1]
    assert (last.reason, last.op) == ("end", "")
    assert last.frame is not None
    assert last.frame.line == line


def test_known_graphs_are_not_reported(listener: _Listener) -> None:
    """Running one again costs nothing."""
    for _ in range(5):
        torch.zeros(2, 9, device="hpu").mul(2)
        htcore.mark_step()

    assert len(listener.aggregator.compilations) == 1


def test_compilations_are_bounded(listener: _Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones are counted by line."""
    monkeypatch.setattr(module, "MAX_COMPILATIONS", 2)
    for length in range(1, 7):
        torch.zeros(length, 11, device="hpu")
        htcore.mark_step()

    assert len(listener.aggregator.compilations) == 2
    assert sum(site.count for site in listener.aggregator.sites() if site.kind == "compilation") == 6


def test_double_precision_is_found_where_it_is_made(listener: _Listener) -> None:
    """A copy and an operator alike."""
    x = torch.ones(3, device="hpu")
    x.double()
    line = _line() - 1

    assert _place(listener.site("dtype", "float64")) == (__file__, line)


def test_a_backward_pass_is_named_after_its_operator(listener: _Listener) -> None:
    """And lies at the line that asked for it."""
    x = torch.ones(3, dtype=torch.float64, device="hpu", requires_grad=True)
    loss = x.pow(3).sum()
    loss.backward()
    line = _line() - 1

    sites = [site for site in listener.aggregator.sites() if site.backward == "Pow"]
    assert sites
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_int64_from_the_host_is_noted(listener: _Listener) -> None:
    """Cards in lazy mode store it otherwise."""
    torch.arange(3).to("hpu")

    assert listener.site("dtype", "int64").op == "copy to the card"


def test_events_are_counted_by_training_step(listener: _Listener) -> None:
    """The optimizer's steps are those of the training."""
    model = nn.Linear(2, 1).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = optimizer.register_step_post_hook(
        lambda *_: listener.aggregator.on_optimizer_step(optimizer, sys._getframe(1))
    )
    for _ in range(4):
        loss = model(torch.ones(3, 2).to("hpu")).sum()
        loss.backward()
        optimizer.step()
        htcore.mark_step()
        loss.item()
    hook.remove()

    steps = listener.aggregator.steps()
    assert steps.finished == 4
    assert steps.host_syncs == (1, 1, 1, 1)
    assert steps.copied_bytes[1:] == (24, 24, 24)
    assert steps.syncs_per_step == ((1, 2),)
    assert (listener.site("host_sync").steps, listener.site("host_sync").max_per_step) == (4, 1)


def _hear(aggregator: EventAggregator, kind: str, op: str = "", detail: str = "", size: int = 0) -> None:
    aggregator.on_event(kind, op, detail, size, sys._getframe(1))


def test_collectives_have_name_dtype_and_size() -> None:
    """By line, and as a whole."""
    aggregator = EventAggregator()
    for _ in range(2):
        _hear(aggregator, "collective", "allreduce", "BFloat16[8]", 16)

    (site,) = aggregator.sites()
    assert (site.op, site.variant, site.count, site.bytes) == ("allreduce", "bfloat16", 2, 32)
    assert [(use.name, use.count) for use in aggregator.collectives()] == [("allreduce", 2)]


def test_a_refusal_keeps_its_reason() -> None:
    """As the device words it."""
    aggregator = EventAggregator()
    _hear(aggregator, "refused", "allreduce", "Unsupported ReduceOp for HCCL process group")

    (site,) = aggregator.sites()
    assert (site.kind, site.op) == ("refused", "allreduce")
    assert site.examples == ("Unsupported ReduceOp for HCCL process group",)


def test_an_unknown_event_is_passed_over() -> None:
    """A device may tell more than this reader knows."""
    aggregator = EventAggregator()
    _hear(aggregator, "sunrise")

    assert aggregator.sites() == ()
    assert aggregator.recording_error is None


def test_a_fault_of_the_recorder_stops_it_and_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so."""
    aggregator = EventAggregator()
    _hear(aggregator, "host_sync", "item")
    monkeypatch.setattr(aggregator, "_handle", lambda *_: 1 / 0)
    _hear(aggregator, "host_sync", "item")
    monkeypatch.undo()
    _hear(aggregator, "host_sync", "item")

    assert aggregator.recording_error == "ZeroDivisionError: division by zero"
    assert [site.count for site in aggregator.sites()] == [1]


def test_a_strange_optimizer_stops_it_and_not_the_program() -> None:
    """One whose groups are not what torch's are."""
    aggregator = EventAggregator()
    aggregator.on_optimizer_step(object(), None)
    aggregator.on_optimizer_step(object(), None)

    assert aggregator.recording_error == "AttributeError: 'object' object has no attribute 'param_groups'"
    assert aggregator.steps().finished == 0


def test_threads_can_talk_at_once() -> None:
    """Nothing gets lost."""
    aggregator = EventAggregator()

    def talk() -> None:
        for _ in range(500):
            _hear(aggregator, "host_sync", "item")

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [site.count for site in aggregator.sites()] == [2000]


def test_an_event_may_come_while_another_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler runs anywhere and may use the device."""
    aggregator = EventAggregator()
    take: Any = aggregator._handle

    def interrupted(*event: Any) -> None:
        if event[1] == "outer":
            aggregator.on_event("host_sync", "handler", "", 0, None)
        take(*event)

    monkeypatch.setattr(aggregator, "_handle", interrupted)
    _hear(aggregator, "host_sync", "outer")

    assert {site.op for site in aggregator.sites()} == {"outer", "handler"}
