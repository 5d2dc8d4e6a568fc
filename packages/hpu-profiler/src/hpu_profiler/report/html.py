"""HTML report: one page with its styles, scripts and data, which needs no network and no other files."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_profiler._formatting import format_bytes, format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES
from hpu_profiler.report.page_data import page_data
from hpu_profiler.report.text import format_saving

if TYPE_CHECKING:
    from hpu_profiler.analysis.idle_time import IdleCause
    from hpu_profiler.analysis.job import JobAnalysis, StageAnalysis
    from hpu_profiler.analysis.operators import OperatorStats

__all__ = ["render_html"]

_MAX_BARS: Final = 12
_MAX_ROWS: Final = 60
_MAX_HOST_ROWS: Final = 12
_SCRIPTS: Final = ("timeline.js", "charts.js", "trees.js", "page.js")
_EVENT_CLASSES: Final = ("kernel", "memcpy", "memset", "collective")


def render_html(job: JobAnalysis) -> str:
    """Return the page.

    Args:
        job: Results to render.
    """
    return _template().render(
        job=job,
        causes=IDLE_CAUSES,
        css_classes=[*_EVENT_CLASSES, *map(_css_class, IDLE_CAUSES)],
        hosts=sorted({trace.host for trace in job.traces if trace.host}),
        bars=_bars,
        saving=format_saving,
        max_rows=_MAX_ROWS,
        max_host_rows=_MAX_HOST_ROWS,
        has_memory=any(trace.has_memory for trace in job.traces),
        dropped_events=sum(trace.dropped_events for trace in job.traces),
        skipped_steps=sum(trace.skipped_steps for trace in job.traces),
        css=_file("page.css"),
        script="\n".join(map(_file, _SCRIPTS)),
        data=page_data(job),
    )


def _file(name: str) -> str:
    return resources.files("hpu_profiler.report").joinpath(name).read_text("utf-8")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": format_bytes,
        "time": format_time,
        "percent": format_percent,
        "split_code": _split_code,
        "css_class": _css_class,
        # The width of a bar as CSS.
        "css_width": lambda fraction: f"width: {round(100 * fraction, 2)}%",
        "has_cause": _has_cause,
    }
    return environment.from_string(_file("page.html.jinja"))


def _bars(stage: StageAnalysis) -> list[tuple[OperatorStats, float, float]]:
    """Return the first operators with their fraction of the time and the width of their bar."""
    shares = [(row, fraction) for row, fraction in stage.operator_shares[:_MAX_BARS] if fraction]
    largest = max((fraction for _, fraction in shares), default=1.0)
    return [(row, fraction, fraction / largest) for row, fraction in shares]


def _has_cause(stage: StageAnalysis, cause: IdleCause) -> bool:
    return any(each.idle.by_cause.get(cause) for each in stage.traces)


def _css_class(cause: str) -> str:
    return cause.replace(" ", "-")


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, each with whether it stood between backticks."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]
