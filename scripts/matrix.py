"""Keep docs/matrix.json, what came of the tests of each package on each SynapseAI release, and show it as a table.

`note` writes one cell of it, in the environment in which the tests were run, for it says what is installed there.
`show` prints the table and writes docs/matrix.md.

Usage: `python scripts/matrix.py note --release 1.18.0 --package hpu-core --report junit.xml`, or `--skipped REASON` or
`--failed REASON` where pytest was not run; `python scripts/matrix.py show`. `nox -t matrix` calls both.
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
INSTALLED = ("torch", "lightning", "deepspeed")
# What `note` says of tests that never ended: pytest writes its report last.
NO_REPORT = "pytest ended without a report"

Cell = dict[str, Any]

PREFACE = """# What has been run

<!-- Written by `nox -t matrix` from matrix.json. -->

Tests of each package with the stock torch, the Lightning and the DeepSpeed of a SynapseAI release, on simulated cards
that play this release, with only the package and its declared siblings installed. None of it was measured on a card.
A cell says how many tests passed and were skipped; tests that a suite runs in a process of their own count as one.
"""


def read_report(path: Path) -> Cell:
    """Read what pytest wrote.

    Args:
        path: Its JUnit report.

    Returns:
        The outcome, "pass" or "fail", with the numbers of tests, the ids of those that failed, and how many tests were
        skipped for which reason.
    """
    if not path.is_file():
        return {"outcome": "fail", "reason": NO_REPORT}
    cases = list(ET.parse(path).getroot().iter("testcase"))  # noqa: S314 - pytest's own, from a moment ago.
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


def installed() -> dict[str, str]:
    """Give the versions that are installed here, of what a row is about."""
    found = {distribution.name: distribution.version for distribution in metadata.distributions()}
    return {"python": platform.python_version(), **{name: found[name] for name in INSTALLED if name in found}}


def note(release: str, package: str, outcome: Cell, path: Path = CELLS) -> None:
    """Write a cell in place of an older one.

    Args:
        release: The row.
        package: The column.
        outcome: As `read_report` gives it, or "skip" or "fail" with a reason.
        path: The file.
    """
    cells = read(path)
    cells[release, package] = {
        "release": release,
        "package": package,
        "date": datetime.now(tz=timezone.utc).date().isoformat(),
        **installed(),
        **outcome,
    }
    text = json.dumps([cells[place] for place in sorted(cells)], indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def read(path: Path = CELLS) -> dict[tuple[str, str], Cell]:
    """Give the cells by release and package; none where there is no file yet."""
    cells = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {(cell["release"], cell["package"]): cell for cell in cells}


def describe(cell: Cell | None) -> str:
    """Say in a few words what a cell holds."""
    if cell is None:
        return "not run"
    if cell["outcome"] == "skip":
        return "skipped"
    if "reason" in cell:
        return f"failed: {cell['reason']}"
    words = [f"{len(cell['failed'])} failed"] if cell["failed"] else []
    words += [f"{cell['passed']} passed"]
    words += [f"{cell['skipped']} skipped"] if cell["skipped"] else []
    return ", ".join(words)


def lines(releases: dict[str, str], packages: list[str], cells: dict[tuple[str, str], Cell]) -> list[list[str]]:
    """Give the table.

    Args:
        releases: Which rows there may be, with the torch of each.
        packages: Which columns.
        cells: What has been run.

    Returns:
        The heading, and a row for each release of which something has been run.
    """
    table = [["release", "torch", "Lightning", "DeepSpeed", "Python", "date", *packages]]
    for release, torch in releases.items():
        row = [cells.get((release, package)) for package in packages]
        run = [cell for cell in row if cell is not None]
        if not run:
            continue
        versions = [seen(run, name) for name in ("lightning", "deepspeed", "python", "date")]
        table.append([release, torch, *versions, *map(describe, row)])
    return table


def seen(run: list[Cell], name: str) -> str:
    """Give the values that cells of a row have, which are one unless the row was run in parts."""
    return ", ".join(sorted({cell[name] for cell in run if name in cell})) or "-"


def page(releases: dict[str, str], packages: list[str], cells: dict[tuple[str, str], Cell]) -> str:
    """Write the documentation page; the arguments are those of `lines`."""
    heading, *rows = lines(releases, packages, cells)
    text = [PREFACE, "| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    text += ["| " + " | ".join(row) + " |" for row in rows]
    run = {row[0] for row in rows}
    others = [release for release in releases if release not in run]
    if others:
        text += ["", f"Of these releases nothing has been run: {', '.join(others)}."]
    failed = [f"- {place(cell)}: `{test}`" for cell in cells.values() for test in cell.get("failed", ())]
    if failed:
        text += ["", "## Tests that failed", "", *failed]
    text += ["", "## What was skipped, and why", ""]
    text += [f"- {place(cell)}: {cell['reason']}." for cell in cells.values() if cell["outcome"] == "skip"]
    reasons: Counter[str] = Counter()
    for cell in cells.values():
        reasons.update(cell.get("skips", {}))
    text += [f"- {count} tests, of all rows: {reason}" for reason, count in sorted(reasons.items())]
    return "\n".join(text) + "\n"


def place(cell: Cell) -> str:
    """Name a cell."""
    return f"{cell['package']} on {cell['release']}"


def shown(table: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Give the rows, with the torch of each, and the columns.

    Args:
        table: compat.toml.
    """
    releases = {row["release"]: row["torch"] for row in table["release"] if "torch" in row}
    return releases, sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))


def show() -> None:
    """Print the table and write the page."""
    # Not where a cell is noted: these are no requirements of what is tested there.
    import constraints
    from rich.console import Console
    from rich.table import Table

    releases, packages = shown(constraints.load())
    cells = read()
    heading, *rows = lines(releases, packages, cells)
    table = Table(*heading)
    for row in rows:
        table.add_row(*row)
    Console(width=200).print(table)
    PAGE.write_text(page(releases, packages, cells), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Note a cell or show all.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    noting = commands.add_parser("note", help="write one cell")
    noting.add_argument("--release", required=True)
    noting.add_argument("--package", required=True)
    what = noting.add_mutually_exclusive_group(required=True)
    what.add_argument("--report", type=Path, help="pytest's JUnit report")
    what.add_argument("--skipped", help="why the tests cannot be run")
    what.add_argument("--failed", help="why they could not be run")
    commands.add_parser("show", help="print the table and write docs/matrix.md")
    given = parser.parse_args(arguments)
    if given.command == "show":
        show()
    elif given.report is not None:
        note(given.release, given.package, read_report(given.report))
    else:
        outcome = {"outcome": "fail" if given.skipped is None else "skip", "reason": given.skipped or given.failed}
        note(given.release, given.package, outcome)


if __name__ == "__main__":
    main()
