"""Fit the planner's model of time on published training speeds, cross-validate it, and write the record.

    python packages/hpu-sim/bench/published/fit.py [--write]

The steps are recorded already (record.py), so a fit takes minutes. Nothing is measured here: the truth is what others
published. Parameters are fitted on the declared half, within a prior range each. The headline leaves out one model
family at a time: its points are predicted with parameters that were fitted on all other families. Ranges have what is
uncertain about each parameter, and a factor for the rest, which is chosen on the families left out. ``--write`` writes
the ranges into hardware.json and the tables into docs/records/planner.md.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

import tables
from model_fit import (
    HARDWARE,
    choose_residual,
    fit,
    fit_without_each_family,
    parameters,
    residuals_of,
    values,
)
from record import FOLDER

if TYPE_CHECKING:
    from model_fit import Fit

RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"


def main() -> None:
    """Fit, cross-validate, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write hardware.json and the record")
    options = parser.parse_args()
    fitted = fit(each for each in values() if each.is_fitted)
    folds = fit_without_each_family(fitted)
    ratios = list(tables.compared(fitted))
    residuals = residuals_of(folds)
    residuals["ratio"] = choose_residual([[(each.predicted, each.truth) for each in ratios]])
    if options.write:
        write_hardware(fitted, residuals)
    text = tables.render(folds, ratios, residuals)
    if options.write:
        tables.write(RECORD, text)
    print(text)


def write_hardware(fitted: Fit, residuals: dict[str, float]) -> None:
    """Write the fitted values and ranges into hardware.json."""
    text = HARDWARE.read_text(encoding="utf-8")
    data = json.loads(text)
    for each in parameters():
        group = data["generations"][each.generation] if each.generation else data["common"]
        if each.name in group:
            value = fitted.settings[each.name, each.generation]
            found = {
                "range": [_short(end) for end in fitted.ends(each)],
                "value": _short(value),
                "deviations": [_short(number) for number in fitted.deviations[each.name, each.generation]],
            }
            text = _replace(text, each.generation, each.name, group[each.name], found)
    text = _replace(text, "", "residuals", data["common"]["residuals"], residuals)
    HARDWARE.write_text(text, encoding="utf-8")


def _short(number: float) -> float:
    return float(f"{number:.3g}")


def _replace(text: str, generation: str, name: str, entry: dict[str, Any], found: dict[str, Any]) -> str:
    """Replace values of an entry, which is one line of the file."""
    head, begin, tail = text.partition(f'"{generation}": {{' if generation else '"common": {')
    return head + begin + tail.replace(f'"{name}": {json.dumps(entry)}', f'"{name}": {json.dumps(entry | found)}', 1)


if __name__ == "__main__":
    main()
