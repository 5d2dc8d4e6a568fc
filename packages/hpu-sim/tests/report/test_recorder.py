"""From the device's events to what a reader wants to know."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import core as htcore
from torch import nn

from hpu_sim.report import recorder as module
from hpu_sim.report.recorder import Recorder
from hpu_sim.runtime import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_sim.report.model import Site


class _Listening:
    """A recorder that hears the device."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        htcore.mark_step()
        native().set_listener(self._listen)

    def _listen(self, kind: str, op: str, detail: str, size: int) -> None:
        self.recorder.listen(kind, op, detail, size, sys._getframe().f_back)

    def site(self, kind: str, variant: str = "") -> Site:
        """Return the only site of a kind and, if given, a variant."""
        (site,) = [each for each in self.recorder.sites() if each.kind == kind and variant in {"", each.variant}]
        return site


@pytest.fixture
def listening() -> Iterator[_Listening]:
    """A recorder that hears what the test makes the device do."""
    listening = _Listening()
    yield listening
    native().set_listener(None)
    assert listening.recorder.problem is None


def _line() -> int:
    return sys._getframe(1).f_lineno


def _place(site: Site) -> tuple[str, int]:
    assert site.frame is not None
    return site.frame.file, site.frame.line


def test_a_host_sync_has_the_line_that_asked_for_it(listening: _Listening) -> None:
    """Not that of the library that it called."""
    x = torch.ones(3, device="hpu")
    print(x)  # noqa: T201 - the device is what listens
    line = _line() - 1

    sites = [site for site in listening.recorder.sites() if site.kind == "host_sync"]
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_copies_say_how_much(listening: _Listening) -> None:
    """Both ways."""
    torch.ones(3, 4).to("hpu").cpu()

    pageable = listening.site("h2d", "pageable")
    assert (pageable.bytes, pageable.examples) == (48, ("float32[3, 4]",))
    assert listening.site("d2h").bytes == 48


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_copies_from_pinned_memory_are_told_apart(listening: _Listening) -> None:
    """They do not hold up the host."""
    torch.ones(5).pin_memory().to("hpu", non_blocking=True)

    pinned = listening.site("h2d", "pinned")
    assert (pinned.bytes, pinned.examples) == (20, ("float32[5]",))


def test_a_recompilation_names_the_operator_and_its_old_and_new_inputs(listening: _Listening) -> None:
    """The line is that of the operator, though the graph closes elsewhere."""
    for length in (3, 4):
        x = torch.zeros(length, 2, device="hpu")
        htcore.mark_step()
        x.mul(2)
        line = _line() - 1
        htcore.mark_step()

    compilation = listening.recorder.compilations[-1]
    assert (compilation.what, compilation.recompiled, compilation.reason) == ("aten::mul", True, "shapes")
    assert (compilation.before, compilation.after) == ("float32[3, 2]", "float32[4, 2]")
    assert compilation.frame is not None
    assert compilation.frame.line == line


def test_a_graph_of_new_operators_is_no_recompilation(listening: _Listening) -> None:
    """It has to be compiled all the same."""
    x = torch.zeros(3, device="hpu")
    htcore.mark_step()
    # An operator that no other test begins a graph with: the device keeps its graphs as long as the process lives.
    x.lgamma().add(1).sub(7)
    htcore.mark_step()

    last = listening.recorder.compilations[-1]
    assert (last.recompiled, last.reason, last.before) == (False, "operators", "")


def test_a_graph_that_ends_earlier_than_before_is_where_it_ended(listening: _Listening) -> None:
    """No operator differs."""
    x = torch.zeros(6, 1, device="hpu")
    htcore.mark_step()
    x.neg().abs().neg().abs()
    htcore.mark_step()
    x.neg().abs().neg()
    htcore.mark_step()
    line = _line() - 1

    last = listening.recorder.compilations[-1]
    assert (last.reason, last.what) == ("end", "")
    assert last.frame is not None
    assert last.frame.line == line


def test_known_graphs_are_not_reported(listening: _Listening) -> None:
    """Running one again costs nothing."""
    for _ in range(5):
        torch.zeros(2, 9, device="hpu").mul(2)
        htcore.mark_step()

    assert len(listening.recorder.compilations) == 1


def test_compilations_are_bounded(listening: _Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones are counted by line."""
    monkeypatch.setattr(module, "MAX_COMPILATIONS", 2)
    for length in range(1, 7):
        torch.zeros(length, 11, device="hpu")
        htcore.mark_step()

    assert len(listening.recorder.compilations) == 2
    assert sum(site.count for site in listening.recorder.sites() if site.kind == "compilation") == 6


def test_double_precision_is_found_where_it_is_made(listening: _Listening) -> None:
    """A copy and an operator alike."""
    x = torch.ones(3, device="hpu")
    x.double()
    line = _line() - 1

    assert _place(listening.site("dtype", "float64")) == (__file__, line)


def test_a_backward_pass_is_named_after_its_operator(listening: _Listening) -> None:
    """And lies at the line that asked for it."""
    x = torch.ones(3, dtype=torch.float64, device="hpu", requires_grad=True)
    loss = x.pow(3).sum()
    loss.backward()
    line = _line() - 1

    sites = [site for site in listening.recorder.sites() if site.backward == "Pow"]
    assert sites
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_int64_from_the_host_is_noted(listening: _Listening) -> None:
    """Cards in lazy mode store it otherwise."""
    torch.arange(3).to("hpu")

    assert listening.site("dtype", "int64").what == "copy to the card"


def test_events_are_counted_by_training_step(listening: _Listening) -> None:
    """The optimizer's steps are those of the training."""
    model = nn.Linear(2, 1).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = optimizer.register_step_post_hook(
        lambda *_: listening.recorder.optimizer_stepped(optimizer, sys._getframe(1))
    )
    for _ in range(4):
        loss = model(torch.ones(3, 2).to("hpu")).sum()
        loss.backward()
        optimizer.step()
        htcore.mark_step()
        loss.item()
    hook.remove()

    steps = listening.recorder.steps()
    assert steps.finished == 4
    assert steps.host_syncs == (1, 1, 1, 1)
    assert steps.copied_bytes[1:] == (24, 24, 24)
    assert steps.syncs_per_step == ((1, 2),)
    assert (listening.site("host_sync").steps, listening.site("host_sync").most_in_step) == (4, 1)


def _hear(recorder: Recorder, kind: str, op: str = "", detail: str = "", size: int = 0) -> None:
    recorder.listen(kind, op, detail, size, sys._getframe(1))


def test_collectives_have_name_dtype_and_size() -> None:
    """By line, and as a whole."""
    recorder = Recorder()
    for _ in range(2):
        _hear(recorder, "collective", "allreduce", "BFloat16[8]", 16)

    (site,) = recorder.sites()
    assert (site.what, site.variant, site.count, site.bytes) == ("allreduce", "bfloat16", 2, 32)
    assert [(use.name, use.count) for use in recorder.collectives()] == [("allreduce", 2)]


def test_a_refusal_keeps_its_reason() -> None:
    """As the device words it."""
    recorder = Recorder()
    _hear(recorder, "refused", "allreduce", "Unsupported ReduceOp for HCCL process group")

    (site,) = recorder.sites()
    assert (site.kind, site.what) == ("refused", "allreduce")
    assert site.examples == ("Unsupported ReduceOp for HCCL process group",)


def test_an_unknown_event_is_passed_over() -> None:
    """A device may tell more than this reader knows."""
    recorder = Recorder()
    _hear(recorder, "sunrise")

    assert recorder.sites() == ()
    assert recorder.problem is None


def test_a_fault_of_the_recorder_stops_it_and_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so."""
    recorder = Recorder()
    _hear(recorder, "host_sync", "item")
    monkeypatch.setattr(recorder, "_take", lambda *_: 1 / 0)
    _hear(recorder, "host_sync", "item")
    monkeypatch.undo()
    _hear(recorder, "host_sync", "item")

    assert recorder.problem == "ZeroDivisionError: division by zero"
    assert [site.count for site in recorder.sites()] == [1]


def test_a_strange_optimizer_stops_it_and_not_the_program() -> None:
    """One whose groups are not what torch's are."""
    recorder = Recorder()
    recorder.optimizer_stepped(object(), None)
    recorder.optimizer_stepped(object(), None)

    assert recorder.problem == "AttributeError: 'object' object has no attribute 'param_groups'"
    assert recorder.steps().finished == 0


def test_threads_can_talk_at_once() -> None:
    """Nothing gets lost."""
    recorder = Recorder()

    def talk() -> None:
        for _ in range(500):
            _hear(recorder, "host_sync", "item")

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [site.count for site in recorder.sites()] == [2000]


def test_an_event_may_come_while_another_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler runs anywhere and may use the device."""
    recorder = Recorder()
    take: Any = recorder._take

    def interrupted(*event: Any) -> None:
        if event[1] == "outer":
            recorder.listen("host_sync", "handler", "", 0, None)
        take(*event)

    monkeypatch.setattr(recorder, "_take", interrupted)
    _hear(recorder, "host_sync", "outer")

    assert {site.what for site in recorder.sites()} == {"outer", "handler"}
