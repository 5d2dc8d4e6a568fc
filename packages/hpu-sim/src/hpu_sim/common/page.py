"""HTML pages: self-contained files of one layout and one style sheet, without scripts, fonts or links."""

from __future__ import annotations

from typing import Any

import jinja2

from hpu_sim.common.formatting import format_bytes, format_int, format_range, format_seconds, show_location


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: Template that extends ``common/page.html.jinja``, as a path in this package.
        **values: Variables of the template. The layout needs ``title``, ``badge`` and ``command``.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hpu_sim", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": format_bytes,
        "number": format_int,
        "seconds": format_seconds,
        "range": format_range,
        "path": show_location,
    }
    return environment.get_template(template).render(values)
