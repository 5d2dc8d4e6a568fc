"""HTML report: one page with the curve of a plan, without scripts, fonts or other files."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import jinja2
import numpy as np

from hpu_bucketing.report.text import format_boundaries, format_seconds, model_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["render_html"]

#: Size of the picture; the page scales it.
_WIDTH: Final = 720
_HEIGHT: Final = 240


def render_html(plan: BucketPlan, lengths: Sequence[int]) -> str:
    """Return the page of a plan that was made from lengths, given in the first dimension."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Any] = {
        "percent": lambda share: f"{share:.1%}",
        "time": format_seconds,
        "limits": format_boundaries,
    }
    environment.filters |= filters
    page = resources.files("hpu_bucketing.report").joinpath("page.html.jinja").read_text("utf-8")
    largest = max((point.compilations for point in plan.curve), default=1)
    points = [
        (
            round(_WIDTH * point.compilations / (largest + 1), 1),
            round(_HEIGHT * (1 - point.padding_share), 1),
            point,
            point.boundaries == plan.dimensions,
        )
        for point in plan.curve
    ]
    return environment.from_string(page).render(
        plan=plan,
        model=model_sentence(plan),
        points=points,
        bars=_histogram(lengths),
        boundaries=[round(_WIDTH * limit / plan.dimensions[0][-1], 1) for limit in plan.dimensions[0]],
        width=_WIDTH,
        height=_HEIGHT,
        samples=len(lengths),
        longest=plan.dimensions[0][-1],
    )


def _histogram(lengths: Sequence[int], bars: int = 90) -> list[tuple[float, float, float]]:
    """Return x, height and width of bars of a histogram."""
    counts = np.histogram(lengths, bars, (0, max(lengths) + 1))[0].tolist()
    width, most = _WIDTH / bars, max(counts)
    return [
        (round(index * width, 1), round(_HEIGHT * count / most, 1), round(width * 0.9, 1))
        for index, count in enumerate(counts)
        if count
    ]
