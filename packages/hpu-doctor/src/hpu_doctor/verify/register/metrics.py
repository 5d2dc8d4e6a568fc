"""Metrics of the bridge, and steps of lazy mode."""

import json
from pathlib import Path

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import AtLeast, Subject
from hpu_doctor.verify.register._tools import BRIDGE, core, hpu

SUBJECT = Subject("Metrics and steps")
assume = SUBJECT.assume


@assume(
    source=BRIDGE + "hpu/metrics.py",
    expected=["TotalNumber", "TotalTime", "AvgTime"],
    mode="lazy",
    means={
        "hpu-bucketing": "the monitor of recompilations would count nothing.",
        "hpu-core": "`telemetry` would lack compilations.",
    },
)
def compilation_metric() -> object:
    """The metric graph_compilation has a number and times."""
    return list(bridge.metric("graph_compilation"))[:3]


@assume(
    source=BRIDGE + "hpu/metrics.py",
    expected=["TotalNumber", "FallbackOps"],
    means={"hpu-core": "`telemetry` would lack operators on the CPU."},
)
def fallback_metric() -> object:
    """The metric cpu_fallback has a number and the operators."""
    return list(bridge.metric("cpu_fallback"))


@assume(
    source=BRIDGE + "hpu/metrics.py",
    expected=["TotalNumber", "TotalSuccessful", "AvgTime", "MaxTime"],
    means={"hpu-core": "`telemetry` would lack defragmentations."},
)
def defragmentation_metric() -> object:
    """The metric memory_defragmentation has numbers and times."""
    return list(bridge.metric("memory_defragmentation"))


@assume(
    source=BRIDGE + "hpu/metrics.py, metric_global returns None",
    expected={},
    means={"hpu-core": "reading a metric of another release would raise an error."},
)
def unknown_metric_is_nothing() -> object:
    """`metric_global` of an unknown name is None."""
    return bridge.metric("no_such_metric")


@assume(
    source=BRIDGE + "hpu/metrics.py, metrics_dump",
    expected=True,
    means={"hpu-core": "files of metrics could not be read."},
)
def metrics_can_be_written() -> object:
    """`metrics_dump` writes the metrics as JSON, each with its name."""
    hpu().metrics_dump("metrics.json")
    entries = json.loads(Path("metrics.json").read_text(encoding="utf-8"))
    return any(entry.get("metric_name") == "graph_compilation" for entry in entries)


@assume(
    source=BRIDGE + "core/step_closure.py",
    expected=[[], ["run"]],
    mode="lazy",
    means={"hpu-core": "what waits for the end of a step would run at once, or never."},
)
def closure_runs_at_mark_step() -> object:
    """In lazy mode a step closure runs at the next `mark_step`."""
    calls: list[str] = []
    core().add_step_closure(calls.append, ("run",))
    before = list(calls)
    core().mark_step()
    return [before, calls]


@assume(
    source=BRIDGE + "core/step_closure.py, no-op in eager mode",
    expected=[],
    mode="eager",
    means={"hpu-core": "closures could be used in both modes."},
)
def closure_never_runs_in_eager_mode() -> object:
    """In eager mode a step closure never runs."""
    calls: list[str] = []
    core().add_step_closure(calls.append, ("run",))
    core().mark_step()
    return calls


@assume(
    source=BRIDGE + "core/step_closure.py",
    expected=[None, None],
    means={"hpu-core": "`mark_step` would be no statement that can stand anywhere."},
)
def mark_step_returns_nothing() -> object:
    """`mark_step()` and `iter_mark_step()` return None in both modes."""
    return [core().mark_step(), core().iter_mark_step()]


@assume(
    source=BRIDGE + "habana_lazy; Intel's Theory of Operations",
    expected=[AtLeast(1), 0, AtLeast(1)],
    mode="lazy",
    means={
        "hpu-bucketing": "new shapes would cost nothing, or known ones would.",
        "hpu-sim": "its counts of compilations would be wrong.",
    },
)
def new_shape_compiles_once() -> object:
    """In lazy mode a graph is compiled for each new shape, and not again for a known one."""
    counts = []
    for rows in (3, 3, 5):
        inputs = torch.ones(rows, 4, device="hpu")
        core().mark_step()
        before = _compilations()
        (inputs * 2 + 1).sum()
        core().mark_step()
        hpu().synchronize()
        counts.append(_compilations() - before)
    return counts


@assume(
    source=BRIDGE + "hpu/metrics.py, metric_localcontext",
    expected=True,
    mode="lazy",
    means={"hpu-bucketing": "compilations of a part of a program could not be counted."},
)
def local_metric_counts_its_own() -> object:
    """`metric_localcontext` counts what happens within it."""
    with hpu().metric_localcontext("graph_compilation") as metric:
        torch.ones(7, 3, device="hpu").mul(3)
        core().mark_step()
        hpu().synchronize()
    return dict(metric.stats())["TotalNumber"] >= 1


def _compilations() -> int:
    return int(str(bridge.metric("graph_compilation")["TotalNumber"]))
