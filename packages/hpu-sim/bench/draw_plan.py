"""Draw the memory from the setup to the last step of a plan, as an SVG file for a document.

hpu-sim plan --json=plan.json train.py
python packages/hpu-sim/bench/draw_plan.py plan.json memory.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hpu_sim.common.document import Chart
from hpu_sim.common.formatting import format_bytes
from hpu_sim.plan import Plan, view


def draw(plan: Plan) -> str:
    """Return the drawing of the first strategy."""
    each = plan.strategies[0]
    chart = next(part for part in view.document(plan).parts if isinstance(part, Chart))
    areas = [shape for shape in chart.shapes if shape.points]
    bands = "".join(f'<polygon points="{area.points}" fill="{area.style}"/>' for area in areas)
    keys = "".join(
        f'<rect x="{20 + 170 * index}" y="262" width="12" height="12" fill="{area.style}"/>'
        f'<text x="{37 + 170 * index}" y="272">{area.label}</text>'
        for index, area in enumerate(areas)
    )
    title = (
        f"{each.strategy}, {each.nodes} x {each.devices} {each.generation}: memory of a rank to the last step, 0 to "
        f"{format_bytes(each.memory.peak_bytes)} ({plan.disclaimer})"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1240 285" font-family="sans-serif" font-size="13">'
        '<rect width="1240" height="285" fill="white"/>'
        f'<text x="20" y="20">{title}</text><g transform="translate(20,32) scale(1.2,1)">{bands}</g>{keys}</svg>\n'
    )


def main() -> None:
    """Read the plan of the first argument and write the drawing to the second."""
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(Plan.from_dict(json.loads(source.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    main()
