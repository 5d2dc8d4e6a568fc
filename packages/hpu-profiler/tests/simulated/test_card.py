"""What HPUProfiler records of a card."""

import importlib.metadata
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.profiler

from hpu_core import bridge, register
from hpu_profiler import HPUProfiler
from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.analysis.operators import operator_stats
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import find_traces, read_trace

from ..chrome_trace import violations  # noqa: TID252 - pytest gives the folder of tests no absolute name
from ..models import Model, loader  # noqa: TID252 - pytest gives the folder of tests no absolute name

pytestmark = pytest.mark.skipif(
    not hasattr(torch.profiler.ProfilerActivity, "HPU"),
    reason="Requires: torch 2.7, which has a name for hpu activity, or a bridge up to 1.19, which brings one",
)


def _is_installed() -> bool:
    try:
        importlib.metadata.distribution("hpu-profiler")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture
def fit(on_card: Callable[..., Any], tmp_path: Path) -> Callable[..., Trace]:
    """Trains with a profiler and returns the one trace of it."""

    def run(profiler: HPUProfiler, width: int = 16) -> Trace:
        on_card(profiler).fit(Model(width=width), loader(6, width))
        (path,) = find_traces([tmp_path])
        return read_trace(path)

    return run


def test_the_cards_work_is_in_the_trace(fit: Callable[..., Trace]) -> None:
    """Of host and card, and of the scheduled steps."""
    trace = fit(HPUProfiler())

    assert trace.device_name == "GAUDI2"
    assert trace.simulated
    assert len(trace.steps) == 3
    assert {"MME", "TPC", "DMA"} <= {work.track for work in trace.device_events}


def test_the_cards_work_is_linked_to_its_operators(fit: Callable[..., Trace]) -> None:
    """All kernels are, those of the backward pass too."""
    kernels = [work for work in fit(HPUProfiler()).device_events if work.kind == "kernel"]

    assert {"aten::mm", "aten::addmm", "aten::threshold_backward"} <= {work.name for work in kernels}
    assert all(work.operator is not None and work.operator.name == work.name for work in kernels)


def test_the_trace_keeps_the_rules_of_its_format(fit: Callable[..., Trace]) -> None:
    """Those that Perfetto enforces, by leaving out what breaks them."""
    events = json.loads(fit(HPUProfiler()).path.read_text())["traceEvents"]

    assert any(event["ph"] == "s" for event in events)
    assert violations(events) == []


def test_the_summary_has_the_times_of_the_trace(fit: Callable[..., Trace]) -> None:
    """The card's time of all operators together is that of all intervals."""
    trace = fit(HPUProfiler(filename="perf-logs", row_limit=-1))

    rows = operator_stats([trace])
    text = next(trace.path.parent.glob("*.txt")).read_text()
    assert sum(row.device_time for row in rows) == pytest.approx(sum(work.duration for work in trace.device_events))
    shown = {line.split()[0] for line in text.splitlines() if line.startswith("aten::")}
    assert {row.name for row in rows if row.device_events} <= shown
    assert re.search(r"HPU time total: .*\(simulated\)", text)


def test_the_bridges_own_counts_are_in_the_trace(fit: Callable[..., Trace]) -> None:
    """In lazy mode each graph that had to be compiled, here for a width that no other test uses."""
    trace = fit(HPUProfiler(schedule=None), width=23)

    counted = trace.bridge_metrics["graph_compilation"]["TotalNumber"]
    assert (counted > 0) is bridge.is_lazy()
    assert len(trace.compilations) == counted


def test_the_report_says_what_the_card_waited_for(fit: Callable[..., Trace]) -> None:
    """All of the time is accounted for."""
    (analysis,) = analyze_job([fit(HPUProfiler())]).traces

    assert analysis.busy_time > 0
    assert analysis.busy_time + analysis.idle.total == pytest.approx(analysis.duration)
    assert analysis.idle.by_cause["data loading"] > 0


def test_activities_by_torchs_own_names_will_do(fit: Callable[..., Trace]) -> None:
    """Also where the bridge has put others in their place since they were imported."""
    from torch._C._profiler import ProfilerActivity

    trace = fit(HPUProfiler(activities=[ProfilerActivity.CPU, torch.profiler.ProfilerActivity.HPU]))

    assert trace.device_events


def test_the_host_alone_can_be_recorded(fit: Callable[..., Trace]) -> None:
    """By naming it."""
    trace = fit(HPUProfiler(activities=[torch.profiler.ProfilerActivity.CPU]))

    assert trace.operators
    assert not trace.device_events


def test_a_card_that_is_open_is_recorded_without_a_trainer(tmp_path: Path) -> None:
    """In actions of the user's own."""
    bridge.open_device()
    profiler = HPUProfiler(dirpath=tmp_path)
    with profiler.profile("my_custom_action"):
        torch.ones(3, device="hpu") + 1

    text = profiler.summary()
    assert "HPU time" in text
    assert "aten::add" in text


def test_a_clash_is_an_error_before_training(on_card: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says what to unset."""
    monkeypatch.setenv("HABANA_PROFILE", "1")

    with pytest.raises(RuntimeError, match=r"`unset HABANA_PROFILE`"):
        on_card(HPUProfiler()).fit(Model(), loader(6))


@pytest.mark.skipif(not _is_installed(), reason="Requires: hpu-profiler installed, for its entry point")
def test_the_trainer_knows_it_by_name(on_card: Callable[..., Any]) -> None:
    """`profiler="hpu"`, with nothing of this package imported."""
    register()

    assert type(on_card("hpu").profiler) is HPUProfiler
