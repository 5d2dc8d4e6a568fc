"""The report as one HTML page that needs nothing else: no script, no font, no file from elsewhere."""

from __future__ import annotations

import shlex
import signal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_sim.report.chart import draw
from hpu_sim.report.findings import findings, gaps
from hpu_sim.report.lines import lines_of, names_of
from hpu_sim.report.spelling import difference, operator
from hpu_sim.report.units import grouped, in_bytes
from hpu_sim.report.zero import WORLD_SIZES, estimate

if TYPE_CHECKING:
    from hpu_sim.report.chart import Chart
    from hpu_sim.report.lines import Line
    from hpu_sim.report.model import Compilation, RankRecord, Report

#: Lines of one kind that the page shows; the JSON has all.
MAX_LINES: Final = 100
#: Ranks whose steps are drawn.
MAX_CHARTED: Final = 8

_SECTIONS: Final = (
    ("Host syncs", ("host_sync",), "The host waited until the card had finished."),
    ("Graphs compiled", ("compilation",), "The first operator in which a new graph differs from all before it."),
    ("Copies", ("h2d", "d2h"), "Data that moved between host and card."),
    ("Collectives", ("collective",), "Calls of torch.distributed on hpu tensors."),
    ("Numbers that a card treats otherwise", ("dtype", "refused"), "Operators that made them, or met them."),
)


def render(report: Report) -> str:
    """Return the page."""
    lines = lines_of(report)
    sections = [
        (title, explanation, [line for line in lines if line.kind in kinds]) for title, kinds, explanation in _SECTIONS
    ]
    return _template().render(
        report=report,
        named=tuple(zip(names_of(report), report.ranks, strict=True)),
        machine=report.ranks[0].machine if report.ranks else None,
        command=shlex.join(report.command),
        ending=_ending(report.exit_code),
        ended_well=report.exit_code in {0, None},
        findings=findings(report),
        gaps=gaps(report),
        sections=[(title, explanation, group) for title, explanation, group in sections if group],
        charts=[
            (name, record, charts)
            for name, record in zip(names_of(report)[:MAX_CHARTED], report.ranks, strict=False)
            if (charts := _charts(record))
        ],
        compilations=[(each, difference(each.before, each.after)) for each in _compilations(report)[:MAX_LINES]],
        has_lines=any(record.detail == "lines" for record in report.ranks),
        world_sizes=WORLD_SIZES,
        stages=estimate(report.ranks[0]) if report.ranks else (),
        max_lines=MAX_LINES,
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": in_bytes,
        "grouped": grouped,
        "basename": lambda file: Path(file).name,
        "syncs": _syncs_per_step,
        "operator": operator,
        "place": _place,
        "prose": _prose,
    }
    return environment.from_string(resources.files("hpu_sim.report").joinpath("page.html.jinja").read_text("utf-8"))


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    if exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    return "ended well" if exit_code == 0 else f"ended with exit code {exit_code}"


def _prose(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, and for each whether it is code, as what stands between backticks is."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]


def _place(line: Line) -> str:
    """Return file name and line number."""
    return "no Python line" if line.frame is None else f"{Path(line.frame.file).name}:{line.frame.line}"


def _compilations(report: Report) -> tuple[Compilation, ...]:
    return report.ranks[0].compilations if report.ranks else ()


def _charts(record: RankRecord) -> list[Chart]:
    steps = record.steps
    series = (("Host syncs", steps.host_syncs), ("Graphs compiled", steps.compilations))
    charts = [draw(title, values, steps.steps_per_bin, steps.finished) for title, values in series]
    return [chart for chart in charts if chart is not None]


def _syncs_per_step(record: RankRecord) -> str:
    """Return how many host syncs a step after the first had, in words."""
    pairs = record.steps.syncs_per_step
    if not pairs:
        return "-"
    usual, steps = max(pairs, key=lambda pair: pair[1])
    most = pairs[-1][0]
    total = sum(count for _, count in pairs)
    if len(pairs) == 1:
        return f"{usual} in every step"
    return f"{usual} in {steps} of {total} steps, at most {most}"
