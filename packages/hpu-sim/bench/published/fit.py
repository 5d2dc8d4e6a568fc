"""Fit the planner's model of time on published training speeds, cross-validate it, and write the record.

    python packages/hpu-sim/bench/published/fit.py [--write]

The steps are recorded already (record.py), so a fit takes minutes. Nothing is measured here: the truth is what others
published. Parameters are fitted on the declared half, within a prior range each. The headline leaves out one model
family at a time: its points are predicted with parameters that were fitted on all other families. ``--write`` writes
the ranges into hardware.json and the tables into docs/records/planner.md.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Final

import tables
from model_fit import HARDWARE, choose_width, fit, fit_without_each_family, parameters, values
from record import FOLDER

if TYPE_CHECKING:
    from model_fit import Settings

RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"


def main() -> None:
    """Fit, cross-validate, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write hardware.json and the record")
    options = parser.parse_args()
    settings = fit(each for each in values() if each.is_fitted)
    folds = fit_without_each_family(settings)
    width = choose_width(folds)
    ratios = list(tables.compared(settings, width))
    residual = tables.choose_residual(ratios)
    if options.write:
        write_hardware(settings, width, residual)
    text = tables.render(settings, folds, width, ratios, residual)
    if options.write:
        tables.write(RECORD, text)
    print(text)


def write_hardware(settings: Settings, width: float, residual: float) -> None:
    """Write the fitted values and ranges into hardware.json."""
    text = re.sub(r'"ratio": [\d.]+', f'"ratio": {residual:.2f}', HARDWARE.read_text(encoding="utf-8"))
    data = json.loads(text)
    for each in parameters():
        group = data["generations"][each.generation] if each.generation else data["common"]
        if each.name in group:
            before = json.dumps(group[each.name])
            value = settings[each.name, each.generation]
            ends = [float(f"{end:.3g}") for end in each.ends(value, width)]
            after = json.dumps(group[each.name] | {"range": ends, "value": float(f"{value:.3g}"), "source": "fitted"})
            head, found, tail = text.partition(f'"{each.generation}": {{' if each.generation else '"common": {')
            text = head + found + tail.replace(f'"{each.name}": {before}', f'"{each.name}": {after}', 1)
    HARDWARE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
