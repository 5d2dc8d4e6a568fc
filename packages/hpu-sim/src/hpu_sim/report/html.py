"""HTML page of a report: one self-contained file without scripts, fonts or links."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING, Final

from hpu_sim.common import page
from hpu_sim.common.formatting import changed_inputs, op_name
from hpu_sim.prediction import zero
from hpu_sim.report.chart import HEIGHT, draw
from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.source_lines import OCCURRENCES, rank_labels, source_lines
from hpu_sim.report.text import loader_lines

if TYPE_CHECKING:
    from hpu_sim.report.chart import Chart
    from hpu_sim.report.schema import RankRecord, Report

#: Maximum number of lines in a list; the JSON has all.
MAX_LINES: Final = 100
#: Maximum number of ranks with charts.
MAX_RANKS_WITH_CHARTS: Final = 8

_WORLD_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
# What the stages of ZeRO partition over the cards.
_STAGES: Final = (
    "nothing",
    "optimizer state, and gradients after the backward pass",
    "optimizer state and gradients",
    "optimizer state, gradients and parameters",
)
# Title, kinds of events, description.
_SECTIONS: Final = (
    ("Host-device synchronization", ("host_sync",), "The host waited until the device was idle."),
    (
        "CPU fallbacks",
        ("cpu_fallback",),
        "Operators without a kernel in the bridge 1.19, which a card runs on the CPU.",
    ),
    (
        "Recipe cache misses by line",
        ("compilation",),
        "First operator of a new graph that differs from all earlier ones.",
    ),
    (
        "Graphs of torch.compile",
        ("compiled_graph",),
        "Graphs that hpu_backend compiled, by the line that called the function.",
    ),
    ("Host-device copies", ("h2d", "d2h"), "Data copied between host and device."),
    ("Collectives", ("collective",), "Calls of torch.distributed with hpu tensors."),
    ("Unsupported operations and dtypes", ("dtype", "unsupported"), "Operators that fail or convert on a card."),
)


def render(report: Report) -> str:
    """Return the page."""
    lines = source_lines(report)
    by_section = [
        (title, text, [line for line in lines if line.site.kind in kinds]) for title, kinds, text in _SECTIONS
    ]
    ranks = tuple(zip(rank_labels(report), report.ranks, strict=True))
    first = report.ranks[0] if report.ranks else None
    return page.render(
        "report/page.html.jinja",
        title="Gaudi readiness report",
        badge="simulated",
        command=shlex.join(report.command),
        report=report,
        ranks=ranks,
        machine=first.machine if first else None,
        exit_status=_describe_exit(report.exit_code),
        succeeded=report.exit_code in {0, None},
        findings=findings(report),
        limitations=limitations(report),
        sections=[section for section in by_section if section[2]],
        occurrences=OCCURRENCES,
        chart_height=HEIGHT,
        charts=[
            (label, record, charts) for label, record in ranks[:MAX_RANKS_WITH_CHARTS] if (charts := _charts(record))
        ],
        compilations=[
            (each, changed_inputs(each.old_inputs, each.new_inputs))
            for each in (first.compilations if first else ())[:MAX_LINES]
        ],
        loading=loader_lines(report),
        clocks=[(label, record) for label, record in ranks[:MAX_RANKS_WITH_CHARTS] if record.clock is not None],
        has_lines=any(record.detail == "lines" for record in report.ranks),
        world_sizes=_WORLD_SIZES,
        stages=_STAGES,
        peaks=_zero_peaks(first) if first else {},
        max_lines=MAX_LINES,
        op_name=op_name,
        syncs_per_step=_syncs_per_step,
    )


def _zero_peaks(record: RankRecord) -> dict[int, tuple[int, ...]]:
    """Return the estimated peak of every stage of ZeRO by number of cards; empty if the optimizers are unknown."""
    memory = record.optimizer_memory
    if memory is None:
        return {}
    states = zero.States(memory.parameters, memory.gradients, memory.optimizer_state)
    return {ranks: zero.peaks(states, record.totals["peak_bytes"], ranks) for ranks in _WORLD_SIZES}


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f"exited with code {exit_code}" if exit_code >= 0 else f"terminated by {signal.Signals(-exit_code).name}"


def _charts(record: RankRecord) -> list[Chart]:
    steps = record.steps
    histograms = (("Host syncs", steps.host_syncs), ("Recipe cache misses", steps.compilations))
    charts = [draw(title, values, steps.steps_per_bin, steps.finished) for title, values in histograms]
    return [chart for chart in charts if chart is not None]


def _syncs_per_step(record: RankRecord) -> str:
    """Return the most common and the highest number of host syncs per step."""
    pairs = record.steps.syncs_per_step
    if not pairs:
        return "-"
    most_common, steps = max(pairs, key=lambda pair: pair[1])
    if len(pairs) == 1:
        return str(most_common)
    return f"{most_common} in {steps} of {sum(count for _, count in pairs)} steps, at most {pairs[-1][0]}"
