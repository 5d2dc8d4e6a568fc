"""Tests of the sites of device events."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import core as htcore
from torch import nn

from hpu_sim.device import events
from hpu_sim.device.events import Event
from hpu_sim.prediction.steps import StepTracker
from hpu_sim.report import sites as module
from hpu_sim.report.schema import MAX_EXAMPLES, Site
from hpu_sim.report.sites import SiteRecorder, find_cause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class _Listener:
    """Recorder of the events of the device."""

    def __init__(self) -> None:
        self.steps = StepTracker()
        self.recorder = SiteRecorder(self.steps)
        htcore.mark_step()
        self.end = events.subscribe(events.DIAGNOSTICS, self._on_event)

    def _on_event(self, event: Event) -> None:
        self.recorder.on_event(event, sys._getframe().f_back)

    def site(self, kind: str, variant: str = "", op: str | None = None) -> Site:
        """Return the only site of a kind and, if given, of a variant and an operator."""
        sites = [each for each in self.recorder.sites() if each.kind == kind and variant in {"", each.variant}]
        (site,) = [each for each in sites if op in {None, each.op}]
        return site


@pytest.fixture
def listener() -> Iterator[_Listener]:
    """Yield a recorder of the events of the test."""
    listener = _Listener()
    yield listener
    listener.end()
    assert listener.recorder.recording_error is None


def _line() -> int:
    return sys._getframe(1).f_lineno


def _place(site: Site) -> tuple[str, int]:
    assert site.frame is not None
    return site.frame.file, site.frame.line


def test_host_sync_is_attributed_to_the_line_of_the_program(listener: _Listener) -> None:
    x = torch.ones(3, device="hpu")
    print(x)  # noqa: T201 - the subject of the test
    line = _line() - 1

    sites = [site for site in listener.recorder.sites() if site.kind == "host_sync"]
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_copies_have_sizes_and_shapes(listener: _Listener) -> None:
    torch.ones(3, 4).to("hpu").cpu()

    pageable = listener.site("h2d", "pageable")
    assert (pageable.bytes, pageable.examples) == (48, ["float32[3, 4]"])
    assert listener.site("d2h").bytes == 48


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_copies_from_pinned_memory_are_separate(listener: _Listener) -> None:
    torch.ones(5).pin_memory().to("hpu", non_blocking=True)

    pinned = listener.site("h2d", "pinned")
    assert (pinned.bytes, pinned.examples) == (20, ["float32[5]"])


def test_recompilation_has_the_operator_and_its_old_and_new_inputs(listener: _Listener) -> None:
    """The line is that of the operator rather than that of `mark_step`."""
    for length in (3, 4):
        x = torch.zeros(length, 2, device="hpu")
        htcore.mark_step()
        x.mul(2)
        line = _line() - 1
        htcore.mark_step()

    site = listener.site("compilation", "shapes", "aten::mul")
    assert site.examples == ["float32[3, 2] -> float32[4, 2]"]
    assert _place(site) == (__file__, line)


def test_new_argument_of_a_known_operator_is_a_recompilation(listener: _Listener) -> None:
    htcore.mark_step()
    for dim in (0, 1):
        torch.zeros(5, 5, device="hpu").prod(dim)
        htcore.mark_step()

    site = listener.site("compilation", "arguments", "aten::prod")
    assert site.examples == ["float32[5, 5], dim=0 -> float32[5, 5], dim=1"]


def test_graph_of_new_operators_is_not_a_recompilation(listener: _Listener) -> None:
    x = torch.zeros(3, device="hpu")
    htcore.mark_step()
    # No other test begins a graph with lgamma: the recipe cache lives as long as the process.
    x.lgamma().add(1).sub(7)
    htcore.mark_step()

    assert listener.site("compilation", op="aten::lgamma").variant == "operators"


def test_graph_that_ends_earlier_is_attributed_to_its_end(listener: _Listener) -> None:
    x = torch.zeros(6, 1, device="hpu")
    htcore.mark_step()
    x.neg().abs().neg().abs()
    htcore.mark_step()
    x.neg().abs().neg()
    htcore.mark_step()
    line = _line() - 1

    site = listener.site("compilation", "end")
    assert (site.op, _place(site)) == ("", (__file__, line))


def test_recipe_cache_hits_are_not_reported(listener: _Listener) -> None:
    for _ in range(5):
        torch.zeros(2, 9, device="hpu").mul(2)
        htcore.mark_step()

    assert sum(site.count for site in listener.recorder.sites() if site.kind == "compilation") == 1


def test_float64_is_attributed_to_the_operator_that_creates_it(listener: _Listener) -> None:
    x = torch.ones(3, device="hpu")
    x.double()
    line = _line() - 1

    assert _place(listener.site("dtype", "float64")) == (__file__, line)


def test_printing_computes_in_float64_without_a_finding(listener: _Listener) -> None:
    """Torch formats every tensor in float64."""
    x = torch.ones(3, device="hpu")

    assert str(x)
    assert not [site for site in listener.recorder.sites() if site.kind == "dtype"]


def test_backward_event_has_the_forward_operator(listener: _Listener) -> None:
    x = torch.ones(3, dtype=torch.float64, device="hpu", requires_grad=True)
    loss = x.pow(3).sum()
    loss.backward()
    line = _line() - 1

    sites = [site for site in listener.recorder.sites() if site.backward == "Pow"]
    assert sites
    assert {_place(site) for site in sites} == {(__file__, line)}


def test_events_are_counted_per_training_step(listener: _Listener) -> None:
    model = nn.Linear(2, 1).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = optimizer.register_step_post_hook(
        lambda *_: listener.recorder.on_event(Event("optimizer_end", arguments=(optimizer,)), sys._getframe(1))
    )
    for _ in range(4):
        loss = model(torch.ones(3, 2).to("hpu")).sum()
        loss.backward()
        optimizer.step()
        htcore.mark_step()
        loss.item()
    hook.remove()

    assert listener.steps.finished == 4
    assert (listener.site("host_sync").steps, listener.site("host_sync").count) == (4, 4)


def _send(recorder: SiteRecorder, kind: str, op: str = "", detail: str = "", size: int = 0) -> None:
    recorder.on_event(Event(kind, op, detail, size), sys._getframe(1))


def test_collectives_are_counted_per_line() -> None:
    recorder = SiteRecorder(StepTracker())
    for _ in range(2):
        _send(recorder, "collective", "allreduce", "BFloat16[8]", 16)

    (site,) = recorder.sites()
    assert (site.op, site.variant, site.count, site.bytes) == ("allreduce", "bfloat16", 2, 32)


def test_unsupported_operation_keeps_its_error_message() -> None:
    recorder = SiteRecorder(StepTracker())
    _send(recorder, "unsupported", "allreduce", "Unsupported ReduceOp for HCCL process group")

    (site,) = recorder.sites()
    assert (site.kind, site.op) == ("unsupported", "allreduce")
    assert site.examples == ["Unsupported ReduceOp for HCCL process group"]


def test_exception_stops_recording_and_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = SiteRecorder(StepTracker())
    _send(recorder, "host_sync", "item")
    monkeypatch.setattr(recorder, "_count", lambda *_: 1 / 0)
    _send(recorder, "host_sync", "item")
    monkeypatch.undo()
    _send(recorder, "host_sync", "item")

    assert recorder.recording_error == "ZeroDivisionError: division by zero"
    assert [site.count for site in recorder.sites()] == [1]


def test_concurrent_events_are_all_counted() -> None:
    recorder = SiteRecorder(StepTracker())

    def count_events() -> None:
        for _ in range(500):
            _send(recorder, "host_sync", "item")

    threads = [threading.Thread(target=count_events) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [site.count for site in recorder.sites()] == [2000]


def test_event_in_a_signal_handler_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler may run while another event is being counted."""
    recorder = SiteRecorder(StepTracker())
    take: Any = recorder._count

    def interrupted(event: Event, frame: Any) -> None:
        if event.name == "outer":
            recorder.on_event(Event("host_sync", "handler"), None)
        take(event, frame)

    monkeypatch.setattr(recorder, "_count", interrupted)
    _send(recorder, "host_sync", "outer")

    assert {site.op for site in recorder.sites()} == {"outer", "handler"}


def test_stacks_below_a_line_have_separate_sites() -> None:
    """Two functions of a framework read a value below one line of the program."""
    source = "def {name}(add): add()\n"
    framework: dict[str, Any] = {"__name__": "lightning.pytorch"}
    for name in ("each_step", "each_epoch"):
        exec(compile(source.format(name=name), f"/env/{name}.py", "exec"), framework)  # noqa: S102 - fake of a framework
    recorder = SiteRecorder(StepTracker())

    def add() -> None:
        recorder.on_event(Event("host_sync", "item"), sys._getframe(1))

    for name in ("each_step", "each_step", "each_epoch"):
        framework[name](add)

    assert [(site.count, site.stack[0].function) for site in recorder.sites()] == [(2, "each_step"), (1, "each_epoch")]


def test_loops_of_a_framework_above_a_line_share_a_site() -> None:
    framework: dict[str, Any] = {"__name__": "lightning.pytorch"}
    exec(compile("def once(call): call()\ndef again(call): call()\n", "/env/loop.py", "exec"), framework)  # noqa: S102 - as above
    recorder = SiteRecorder(StepTracker())

    def training_step() -> None:
        _send(recorder, "host_sync")

    for name in ("once", "again"):
        framework[name](training_step)

    assert [site.count for site in recorder.sites()] == [2]


def test_operators_of_a_line_have_separate_sites() -> None:
    recorder = SiteRecorder(StepTracker())
    for op in ("rare", "often", "often"):
        _send(recorder, "host_sync", op)

    assert [(site.op, site.count) for site in recorder.sites()] == [("often", 2), ("rare", 1)]


def test_cache_of_call_paths_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED", 3)
    recorder = SiteRecorder(StepTracker())
    for index in range(10):
        _send(recorder, "host_sync", str(index % 5))

    assert [site.count for site in recorder.sites()] == [2, 2, 2, 2, 2]
    assert len(recorder._cache) <= 3


def test_event_without_a_frame_is_counted() -> None:
    recorder = SiteRecorder(StepTracker())
    recorder.on_event(Event("host_sync", "item"), None)

    (site,) = recorder.sites()
    assert (site.frame, site.stack, site.backward) == (None, (), "")


def test_recipe_cache_miss_counts_once_the_graph_ends() -> None:
    recorder = SiteRecorder(StepTracker())
    _send(recorder, "cache_miss", "mul", "Float[3] -> Float[4]")
    assert recorder.sites() == ()

    _send(recorder, "recompilation")
    assert [(site.op, site.variant) for site in recorder.sites()] == [("mul", "shapes")]


def test_number_of_sites_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SITES", 3)
    recorder = SiteRecorder(StepTracker())
    for index in range(5):
        for _ in range(2):
            _send(recorder, "host_sync", str(index))

    assert [site.count for site in recorder.sites()] == [2, 2, 2]
    assert recorder.dropped_events == 4


def test_steps_with_an_event_are_counted() -> None:
    counter = Site("host_sync", "item", "", None)
    for step in (1, 1, 1, 1, 3, 5, 5):
        counter.add(step, 0, "")

    assert (counter.count, counter.steps, counter.last_step, counter.in_first_step) == (7, 3, 5, 4)


def test_examples_are_distinct_and_limited() -> None:
    counter = Site("h2d", "copy", "pinned", None)
    for size in (1, 1, 2, 3, 4, 5, 6):
        counter.add(1, 0, f"Float[{size}]")

    assert counter.examples == [f"Float[{size}]" for size in range(1, MAX_EXAMPLES + 1)]


# Fakes of Lightning's classes, with its names of modules and functions.
_CALLBACK = """
class Callback: pass
class Checkpoint(Callback):
    def on_train_epoch_end(self, event):
        return self.save(event)
    def save(self, event):
        return event()
"""
_LOOP = """
class Loop:
    def run(self, event):
        return helper(event)
def helper(event):
    return event()
"""


def _module(name: str, source: str) -> Any:
    module = ModuleType(name)
    exec(compile(source, f"/env/{name}.py", "exec"), vars(module))  # noqa: S102 - fake of a framework
    return module


def _frame() -> FrameType:
    return sys._getframe(1)


def _cause(function: Any, *arguments: Any, **options: Any) -> str:
    """Return the cause of an event in a function that this function calls."""
    user = sys._getframe()
    return str(function(*arguments, event=lambda: find_cause(_frame().f_back, user), **options))


def test_callback_is_named_with_its_hook() -> None:
    checkpoint = _module("lightning.pytorch.callbacks.checkpoint", _CALLBACK).Checkpoint()

    assert _cause(checkpoint.on_train_epoch_end) == "Checkpoint.on_train_epoch_end"


def test_method_is_preferred_to_function() -> None:
    loop = _module("lightning.pytorch.loops.fit_loop", _LOOP)

    assert _cause(loop.Loop().run) == "Loop.run"
    assert _cause(loop.helper) == "lightning.pytorch.loops.fit_loop.helper"


def test_torch_is_not_a_cause() -> None:
    assert _cause(_module("torch.nn.modules.module", _LOOP).Loop().run) == ""
