"""The report as one HTML page that needs nothing else: no script, no font, no file from elsewhere."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_profiler.report.model import CAUSES
from hpu_profiler.report.timeline import WIDTH, draw
from hpu_profiler.units import in_bytes, in_percent, in_time

if TYPE_CHECKING:
    from hpu_profiler.report.model import Report
    from hpu_profiler.trace.operators import OperatorTotal

#: Operators with a bar, and in the table below.
MOST_BARS: Final = 12
MOST_ROWS: Final = 60
#: Traces with a timeline.
MOST_TIMELINES: Final = 16


def render(report: Report) -> str:
    """Return the page."""
    whole = sum(_weight(row, report) for row in report.operators)
    most = max((_weight(row, report) for row in report.operators), default=0.0)
    return _template().render(
        report=report,
        causes=CAUSES,
        cards=sorted({each.trace.card for each in report.analyses if each.trace.card}),
        hosts=sorted({each.trace.host for each in report.analyses if each.trace.host}),
        timelines=[(each, draw(each.trace)) for each in report.analyses[:MOST_TIMELINES]],
        timeline_width=WIDTH,
        bars=[
            (row, _weight(row, report) / whole, 100 * _weight(row, report) / most)
            for row in report.operators[:MOST_BARS]
            if _weight(row, report)
        ],
        rows=report.operators[:MOST_ROWS],
        left_out=max(len(report.operators) - MOST_ROWS, 0),
        longest_step=max((each.step_time for each in report.analyses), default=0.0),
        has_memory=any(each.trace.has_memory for each in report.analyses),
        dropped=sum(each.trace.dropped for each in report.analyses),
    )


def _weight(row: OperatorTotal, report: Report) -> float:
    """Return what operators are compared by: time on the card, without one on the host."""
    return row.hpu if report.has_card else row.own_cpu


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": in_bytes,
        "time": in_time,
        "percent": in_percent,
        "prose": _prose,
        "slug": lambda cause: cause.replace(" ", "-"),
    }
    page = resources.files("hpu_profiler.report").joinpath("page.html.jinja")
    return environment.from_string(page.read_text("utf-8"))


def _prose(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, and for each whether it is code, as what stands between backticks is."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]
