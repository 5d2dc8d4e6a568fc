"""HTML report: one page without scripts, fonts or other files."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_profiler._formatting import format_bytes, format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES
from hpu_profiler.report.timeline import WIDTH, timeline

if TYPE_CHECKING:
    from hpu_profiler.analysis.job import JobAnalysis

__all__ = ["render_html"]

_MAX_BARS: Final = 12
_MAX_ROWS: Final = 60
_MAX_TIMELINES: Final = 16


def render_html(job: JobAnalysis) -> str:
    """Return the page.

    Args:
        job: Results to render.
    """
    shares = job.operator_shares
    largest = max((fraction for _, fraction in shares), default=0.0)
    return _template().render(
        job=job,
        causes=IDLE_CAUSES,
        hosts=sorted({each.trace.host for each in job.traces if each.trace.host}),
        timelines=[(each, timeline(each.trace)) for each in job.traces[:_MAX_TIMELINES]],
        timeline_width=WIDTH,
        bars=[(row, fraction, fraction / largest) for row, fraction in shares[:_MAX_BARS] if fraction],
        rows=job.operators[:_MAX_ROWS],
        more_rows=max(len(job.operators) - _MAX_ROWS, 0),
        longest_step=max((each.step_time for each in job.traces), default=0.0),
        has_memory=any(each.trace.has_memory for each in job.traces),
        dropped_events=sum(each.trace.dropped_events for each in job.traces),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": format_bytes,
        "time": format_time,
        "percent": format_percent,
        "split_code": _split_code,
        "css_class": lambda cause: cause.replace(" ", "-"),
        # The width of a bar as CSS.
        "css_width": lambda fraction: f"width: {round(100 * fraction, 2)}%",
    }
    page = resources.files("hpu_profiler.report").joinpath("page.html.jinja")
    return environment.from_string(page.read_text("utf-8"))


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, each with whether it stood between backticks."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]
