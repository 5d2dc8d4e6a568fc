"""Keep docs/matrix.json, the outcome of each package's tests on each SynapseAI release, and write docs/matrix.md.

`record` writes one cell, with the versions that are installed in the environment that ran the tests.

Usage: `python scripts/matrix.py record --release 1.18.0 --package hpu-core --report junit.xml`, or `--skipped REASON`
or `--failed REASON` where pytest did not run; `python scripts/matrix.py page`. `nox -t matrix` calls both.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
CELLS = ROOT / "docs" / "matrix.json"
PAGE = ROOT / "docs" / "matrix.md"
DISTRIBUTIONS = ("torch", "lightning", "deepspeed")
# pytest writes its report last.
NO_REPORT = "pytest ended without a report"

Cell = dict[str, Any]

HEADER = """# Tested releases

<!-- Written by `nox -t matrix` from matrix.json. -->

The tests of each package with the torch (the stock build), Lightning and DeepSpeed of a SynapseAI release, on simulated
cards of this release. Only the package and the packages that it requires are installed. Nothing was measured on a card.
"264 + 4" is 264 tests that passed and 4 that were skipped. The tests of a subprocess of a suite count as one. A cell
with a date is older than the others: it says nothing about what the package has become since.
"""


def read_report(path: Path) -> Cell:
    """Read pytest's JUnit report.

    Returns:
        The outcome, "pass" or "fail", with the number of tests, the ids of those that failed, and the number of tests
        that were skipped for each reason.
    """
    if not path.is_file():
        return {"outcome": "fail", "reason": NO_REPORT}
    cases = list(ET.parse(path).getroot().iter("testcase"))  # noqa: S314 - pytest has just written it.
    failures = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skips = [case.find("skipped") for case in cases if case not in failures]
    reasons = Counter(skip.get("message", "") for skip in skips if skip is not None)
    return {
        "outcome": "fail" if failures or not cases else "pass",
        "passed": len(cases) - len(failures) - reasons.total(),
        "skipped": reasons.total(),
        "failed": sorted(f"{case.get('classname')}::{case.get('name')}" for case in failures),
        "skips": dict(sorted(reasons.items())),
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the stack in this environment."""
    found = {distribution.name: distribution.version for distribution in metadata.distributions()}
    return {"python": platform.python_version(), **{name: found[name] for name in DISTRIBUTIONS if name in found}}


def record(release: str, package: str, outcome: Cell, path: Path = CELLS) -> None:
    """Write a cell, in place of an older one; an outcome without a report is "skip" or "fail" with a reason."""
    cells = read(path)
    date = datetime.now(tz=timezone.utc).date().isoformat()
    cells[release, package] = {"release": release, "package": package, "date": date, **installed_versions(), **outcome}
    text = json.dumps([cells[key] for key in sorted(cells)], indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def read(path: Path = CELLS) -> dict[tuple[str, str], Cell]:
    """Return the cells by release and package; none without a file."""
    cells = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {(cell["release"], cell["package"]): cell for cell in cells}


def describe(cell: Cell | None, newest: str = "") -> str:
    """Return the text of a cell, with its date if that is before the newest."""
    if cell is None:
        return "not run"
    if cell["outcome"] == "skip":
        return "skipped"
    if "reason" in cell:
        return f"failed: {cell['reason']}"
    failed = f"{len(cell['failed'])} failed, " if cell["failed"] else ""
    date = cell.get("date", newest)
    return f"{failed}{cell['passed']} + {cell['skipped']}{f' ({date})' if date < newest else ''}"


def make_table(releases: dict[str, str], packages: list[str], cells: dict[tuple[str, str], Cell]) -> list[list[str]]:
    """Return the header, and a row for each release of which something has been run.

    Args:
        releases: The torch of each release.
        packages: The columns.
        cells: The outcomes.
    """
    table = [["release", "torch", "Lightning", "DeepSpeed", "Python", *packages]]
    newest = max((cell["date"] for cell in cells.values()), default="")
    for release, torch in releases.items():
        row = [cells.get((release, package)) for package in packages]
        if run := [cell for cell in row if cell is not None]:
            # Several versions if the row was run in parts.
            versions = (sorted({cell[name] for cell in run if name in cell}) for name in (*DISTRIBUTIONS[1:], "python"))
            texts = [describe(cell, newest) for cell in row]
            table.append([release, torch, *(", ".join(found) or "-" for found in versions), *texts])
    return table


def make_page(releases: dict[str, str], packages: list[str], cells: dict[tuple[str, str], Cell]) -> str:
    """Return the documentation page; the arguments are those of `make_table`."""
    table = make_table(releases, packages, cells)
    # A column for each release, because a table that is wider than the page is cut off.
    header, *rows = zip(*table, strict=True)
    text = [HEADER, "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    text += ["| " + " | ".join(row) + " |" for row in rows]
    if not_run := sorted(releases.keys() - {row[0] for row in table}, key=list(releases).index):
        text += ["", f"Not run: {', '.join(not_run)}."]
    if failed := [f"- {_name(cell)}: `{test}`" for cell in cells.values() for test in cell.get("failed", ())]:
        text += ["", "## Failed tests", "", *failed]
    text += ["", "## Skipped tests", ""]
    text += [f"- {_name(cell)}: {cell['reason']}." for cell in cells.values() if cell["outcome"] == "skip"]
    reasons: Counter[str] = Counter()
    for cell in cells.values():
        reasons.update(cell.get("skips", {}))
    text += [
        f"- {count} {'test' if count == 1 else 'tests'} in all columns: {reason}"
        for reason, count in sorted(reasons.items())
    ]
    return "\n".join(text) + "\n"


def _name(cell: Cell) -> str:
    return f"{cell['package']} on {cell['release']}"


def current_page() -> str:
    """Return docs/matrix.md as it follows from docs/matrix.json and compat.toml."""
    # Not at the top, because `record` runs in environments without the requirements of `constraints`.
    import constraints

    releases = {row["release"]: row["torch"] for row in constraints.load()["release"] if "torch" in row}
    packages = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
    return make_page(releases, packages, read())


def main(arguments: list[str] | None = None) -> None:
    """Record a cell or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    recorder = commands.add_parser("record", help="write one cell")
    recorder.add_argument("--release", required=True)
    recorder.add_argument("--package", required=True)
    outcome = recorder.add_mutually_exclusive_group(required=True)
    outcome.add_argument("--report", type=Path, help="pytest's JUnit report")
    outcome.add_argument("--skipped", help="why the tests cannot be run")
    outcome.add_argument("--failed", help="why the tests could not be run")
    commands.add_parser("page", help="write docs/matrix.md")
    options = parser.parse_args(arguments)
    if options.command == "page":
        PAGE.write_text(current_page(), encoding="utf-8")
    elif options.report is not None:
        record(options.release, options.package, read_report(options.report))
    elif options.skipped is not None:
        record(options.release, options.package, {"outcome": "skip", "reason": options.skipped})
    else:
        record(options.release, options.package, {"outcome": "fail", "reason": options.failed})


if __name__ == "__main__":
    main()
