"""The report as one HTML page that needs nothing else: no script, no font, no file from elsewhere."""

from __future__ import annotations

import shlex
import signal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_sim.report.chart import draw
from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.formatting import changed_inputs, format_bytes, format_int, op_name
from hpu_sim.report.source_lines import rank_labels, source_lines
from hpu_sim.report.zero import WORLD_SIZES, estimate_zero_stages

if TYPE_CHECKING:
    from hpu_sim.report.chart import Chart
    from hpu_sim.report.schema import Compilation, RankRecord, Report
    from hpu_sim.report.source_lines import SourceLine

#: Lines of one kind that the page shows; the JSON has all.
MAX_LINES: Final = 100
#: Ranks whose steps are drawn.
MAX_RANKS_WITH_CHARTS: Final = 8

_SECTIONS: Final = (
    ("Host syncs", ("host_sync",), "The host waited until the card had finished."),
    ("Graphs compiled", ("compilation",), "The first operator in which a new graph differs from all before it."),
    ("Copies", ("h2d", "d2h"), "Data that moved between host and card."),
    ("Collectives", ("collective",), "Calls of torch.distributed on hpu tensors."),
    ("Numbers that a card treats otherwise", ("dtype", "refused"), "Operators that made them, or met them."),
)


def render(report: Report) -> str:
    """Return the page."""
    lines = source_lines(report)
    sections = [
        (title, explanation, [line for line in lines if line.kind in kinds]) for title, kinds, explanation in _SECTIONS
    ]
    return _template().render(
        report=report,
        named=tuple(zip(rank_labels(report), report.ranks, strict=True)),
        machine=report.ranks[0].machine if report.ranks else None,
        command=shlex.join(report.command),
        exit_status=_describe_exit(report.exit_code),
        ended_well=report.exit_code in {0, None},
        findings=findings(report),
        limitations=limitations(report),
        sections=[(title, explanation, group) for title, explanation, group in sections if group],
        charts=[
            (name, record, charts)
            for name, record in zip(rank_labels(report)[:MAX_RANKS_WITH_CHARTS], report.ranks, strict=False)
            if (charts := _charts(record))
        ],
        compilations=[
            (each, changed_inputs(each.old_inputs, each.new_inputs)) for each in _compilations(report)[:MAX_LINES]
        ],
        has_lines=any(record.detail == "lines" for record in report.ranks),
        world_sizes=WORLD_SIZES,
        stages=estimate_zero_stages(report.ranks[0]) if report.ranks else (),
        max_lines=MAX_LINES,
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "format_bytes": format_bytes,
        "format_int": format_int,
        "basename": lambda file: Path(file).name,
        "syncs": _syncs_per_step,
        "op_name": op_name,
        "place": _place,
        "split_code": _split_code,
    }
    return environment.from_string(resources.files("hpu_sim.report").joinpath("page.html.jinja").read_text("utf-8"))


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    if exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    return "ended well" if exit_code == 0 else f"ended with exit code {exit_code}"


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, and for each whether it is code, as what stands between backticks is."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]


def _place(line: SourceLine) -> str:
    """Return file name and line number."""
    return "no Python line" if line.frame is None else f"{Path(line.frame.file).name}:{line.frame.line}"


def _compilations(report: Report) -> tuple[Compilation, ...]:
    return report.ranks[0].compilations if report.ranks else ()


def _charts(record: RankRecord) -> list[Chart]:
    steps = record.steps
    plotted = (("Host syncs", steps.host_syncs), ("Graphs compiled", steps.compilations))
    charts = [draw(title, values, steps.steps_per_bin, steps.finished) for title, values in plotted]
    return [chart for chart in charts if chart is not None]


def _syncs_per_step(record: RankRecord) -> str:
    """Return how many host syncs a step after the first had, in words."""
    pairs = record.steps.syncs_per_step
    if not pairs:
        return "-"
    most_common, steps = max(pairs, key=lambda pair: pair[1])
    most = pairs[-1][0]
    total = sum(count for _, count in pairs)
    if len(pairs) == 1:
        return f"{most_common} in every step"
    return f"{most_common} in {steps} of {total} steps, at most {most}"
