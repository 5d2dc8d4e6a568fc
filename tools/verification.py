"""The register of `hpu-doctor verify` in this repository: its page, markers that name its entries, and records of runs.

- `tables` is the page of the register, which site_pages.py puts into the site.
- `python tools/verification.py markers` lists markers that name no entry.
- `python tools/verification.py record FOLDER` adds a report to docs/records/verified-on.md, and lists the entries to
  correct.

A statement about cards names the entries that show it, in a comment that readers of the text do not see: a line
`# hpu-doctor verify: id, id` after a docstring or above the code, and `<!-- verify: id, id -->` on a page.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_doctor.verify import register, report
from hpu_doctor.verify.assumption import HARDWARE, STRICT, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_doctor.verify.assumption import Assumption

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "records" / "verified-on.md"

# In the comment after a docstring, or in a hidden one on a page.
MARKER = re.compile(r"(?:# hpu-doctor |<!-- )verify: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")
_SHOWN = {"": "any", STRICT: "strict", HARDWARE: "card only"}
_SOURCES = ("bridge 1.19.0", "bridge of 2025", "torch", "DeepSpeed", "Intel", "Linux", "hl-smi")


def tables() -> str:
    """Return the register as counts and a table for each subject."""
    assumptions = register.assumptions()
    subjects = dict.fromkeys(assumption.subject for assumption in assumptions)
    sources = Counter(_source(assumption) for assumption in assumptions)
    shown = Counter(_SHOWN[assumption.simulator] for assumption in assumptions)
    packages = Counter(package for assumption in assumptions for package in assumption.means)
    lines = [
        f"There are {len(assumptions)}: {shown['any']} show on any simulated card, {shown['strict']} on one in strict",
        f"mode, {shown['card only']} on a card only.",
        "",
        *_counts("source", sources),
        *_counts("package", packages),
    ]
    for subject in subjects:
        lines += [
            f"## {subject}",
            "",
            "| id | statement | claimed for | source | packages | shown by |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(assumption) for assumption in assumptions if assumption.subject == subject]
        lines.append("")
    return "\n".join(lines)


def _counts(name: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {key} | {count} |" for key, count in counts.most_common()]
    return [f"| {name} | assumptions |", "|---|---|", *rows, ""]


def _row(assumption: Assumption) -> str:
    cells = (
        assumption.id,
        f"{assumption.statement} Expected: `{describe(assumption.expected)}`",
        assumption.claim,
        assumption.source.replace("__", "\\_\\_"),
        ", ".join(sorted(assumption.means)),
        f"{_SHOWN[assumption.simulator]}{f': {assumption.reason}' if assumption.reason else ''}",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _source(assumption: Assumption) -> str:
    return next((name for name in _SOURCES if assumption.source.startswith(name)), "other published sources")


def documents(root: Path = ROOT) -> list[Path]:
    """Return the files whose statements are looked at: pages, and sources of the packages without the register."""
    pages = [*root.glob("docs/**/*.md"), *root.glob("packages/*/README.md"), *root.glob("packages/*/docs/*.md")]
    sources = [path for path in root.glob("packages/*/src/**/*.py") if "verify" not in path.relative_to(root).parts]
    generated = {RECORD, root / "docs" / "compatibility.md"}
    return sorted(path for path in [*pages, *sources] if path not in generated and "_build" not in path.parts)


def check_markers(paths: Sequence[Path]) -> list[str]:
    """Return the names in markers that are no entry of the register."""
    known = {assumption.id for assumption in register.assumptions()}
    problems = []
    for path in paths:
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        names = [each for match in MARKER.finditer(path.read_text(encoding="utf-8")) for each in match[1].split(", ")]
        problems += [f"{name}: {each!r} is no entry of the register" for each in names if each not in known]
    return problems


def record(folder: Path) -> list[str]:
    """Add a report to the record, and return the entries to correct.

    Raises:
        ValueError: The folder has no valid report.
    """
    found = report.read(folder)
    machine = found["machine"]
    kind = "simulated " if machine["simulated"] else ""
    differing = report.in_state(found, "differs")
    section = [
        f"## {kind}{machine['generation']}, SynapseAI {machine['release']}, {found['date']}",
        "",
        f"{report.title(found)}: {machine['cards']} cards, {found['seconds']} s.",
        "",
        f"{', '.join(f'{key} {value}' for key, value in machine['versions'].items() if value)}.",
        "",
    ]
    if differing:
        section += ["| entry | expected | seen | meaning |", "|---|---|---|---|"]
        section += [f"| {' | '.join(_escape(text) for text in _difference(entry))} |" for entry in differing]
        section.append("")
    before = RECORD.read_text(encoding="utf-8")
    if not machine["simulated"]:
        before = before.replace("\nNo card has been tried yet.\n", "")
    RECORD.write_text(f"{before.rstrip()}\n\n" + "\n".join(section), encoding="utf-8")
    return [f"{entry['id']}: expected {entry['expected']}, seen {entry['seen']}" for entry in differing]


def _difference(entry: report.Entry) -> tuple[str, ...]:
    meaning = " ".join(f"{package}: {sentence}" for package, sentence in entry["means"].items())
    return entry["id"], entry["expected"], str(entry["seen"]), meaning


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    parser = argparse.ArgumentParser(description="Work with the register of `hpu-doctor verify`.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("markers")
    commands.add_parser("record").add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "markers":
        problems = check_markers(documents())
        print(*problems, f"{len(problems)} problems", sep="\n")
        return int(bool(problems))
    for line in record(options.folder):
        print(f"correct {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
