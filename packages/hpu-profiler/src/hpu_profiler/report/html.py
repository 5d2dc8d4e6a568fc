"""HTML report: one page with its styles, which needs no network, no script and no other files."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

import jinja2

from hpu_profiler._formatting import format_percent, format_time
from hpu_profiler.analysis.idle_time import IDLE_CAUSES
from hpu_profiler.report import tables
from hpu_profiler.report.text import format_saving, format_site

if TYPE_CHECKING:
    from hpu_profiler.analysis.job import JobAnalysis
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

_MAX_ROWS: Final = 60
_MAX_STEPS: Final = 100

#: Share of a whole with its CSS class and its name.
_Part = tuple[str, str, float]


def render_html(job: JobAnalysis) -> str:
    """Return the page."""
    return _template().render(
        job=job,
        hosts=sorted({trace.host for trace in job.traces if trace.host}),
        saving=format_saving,
        site=format_site,
        ranks=tables.ranks,
        details=lambda stage: tables.details(stage, max_operators=_MAX_ROWS),
        max_rows=_MAX_ROWS,
        max_steps=_MAX_STEPS,
        most_slowest=tables.MOST_SLOWEST,
        parts=_parts,
        step_parts=_step_parts,
        css_classes=["card-work", "network", "host", *map(_css_class, IDLE_CAUSES)],
        dropped_events=sum(trace.dropped_events for trace in job.traces),
        css=resources.files("hpu_profiler.report").joinpath("page.css").read_text("utf-8"),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "time": format_time,
        "percent": format_percent,
        "split_code": _split_code,
        "css_percent": lambda fraction: f"{round(100 * fraction, 2)}%",
    }
    return environment.from_string(
        resources.files("hpu_profiler.report").joinpath("page.html.jinja").read_text("utf-8")
    )


def _parts(trace: TraceAnalysis) -> list[_Part]:
    """Return the shares of the time on the card of a rank."""
    parts = [
        ("card-work", "compute and copies", trace.busy_time - trace.exposed_comm),
        ("network", "exposed communication", trace.exposed_comm),
        *((_css_class(cause), f"idle: {cause}", trace.idle.by_cause.get(cause, 0.0)) for cause in IDLE_CAUSES),
    ]
    return [(css_class, name, time / trace.duration) for css_class, name, time in parts if time]


def _step_parts(trace: TraceAnalysis, index: int) -> list[_Part]:
    """Return the shares of a step in the longest step of its rank."""
    step = trace.step_stats[index]
    longest = max(each.duration for each in trace.step_stats) or 1.0
    parts = (("card-work", "card", step.card), ("network", "network", step.network), ("host", "host", step.host))
    return [(css_class, name, time / longest) for css_class, name, time in parts]


def _css_class(cause: str) -> str:
    return "idle-" + cause.replace(" ", "-")


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a text, each with whether it stood between backticks."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]
