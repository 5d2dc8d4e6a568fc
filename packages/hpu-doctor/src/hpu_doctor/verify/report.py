"""The report folder: `report.json`, `report.txt`, `report.html`, `calibration.json` and what programs attached."""

import html
import json
import platform
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpu_core.discovery import printable
from hpu_core.info import SystemInfo
from hpu_doctor.__about__ import __version__
from hpu_doctor.verify.assumption import describe, difference
from hpu_doctor.verify.privacy import Redactor
from hpu_doctor.verify.runner import Outcome, Target
from hpu_doctor.verify.schema import SCHEMA, Entry, Machine, Point, Report, State

JSON_FILE: Final = "report.json"
TEXT_FILE: Final = "report.txt"
HTML_FILE: Final = "report.html"
CALIBRATION_FILE: Final = "calibration.json"
ATTACHMENTS: Final = "attachments"

STATES: Final[tuple[State, ...]] = ("differs", "not tried", "holds")
_MAX_SEEN: Final = 2000
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>hpu-doctor verify</title>
<style>pre{font:15px/1.5 ui-monospace,monospace;max-width:100ch;margin:2rem auto;white-space:pre-wrap}
b{color:#b00}</style></head><body>
<pre>%s</pre>
</body></html>
"""


def build(  # noqa: PLR0913 - the parts of a report.
    outcomes: Iterable[Outcome],
    system: SystemInfo,
    target: Target,
    redactor: Redactor,
    *,
    date: str,
    seconds: float,
) -> Report:
    """Return the report on outcomes.

    Args:
        outcomes: The outcomes, in the order of the register.
        system: Cards and software.
        target: The machine that was tried.
        redactor: Removes what identifies the machine.
        date: Day of the run, ISO.
        seconds: Time of the run.
    """
    outcomes = list(outcomes)
    counts = Counter(outcome.state for outcome in outcomes)
    return {
        "schema_version": SCHEMA,
        "date": date,
        "seconds": round(seconds, 1),
        "machine": _machine(system, target, redactor),
        "counts": {state: counts[state] for state in STATES},
        "entries": [_entry(outcome, redactor) for outcome in outcomes],
        "points": [point for outcome in outcomes for point in _points(outcome, target)],
        "attachments": sorted(
            f"{outcome.assumption.id}-{name}" for outcome in outcomes for name in outcome.attachments
        ),
    }


def write(report: Report, outcomes: Iterable[Outcome], folder: Path, redactor: Redactor) -> None:
    """Write the files of a report to an existing folder."""
    (folder / JSON_FILE).write_text(f"{json.dumps(report, indent=1)}\n", encoding="utf-8")
    (folder / TEXT_FILE).write_text(to_text(report), encoding="utf-8")
    (folder / HTML_FILE).write_text(to_html(report), encoding="utf-8")
    if report["points"]:
        (folder / CALIBRATION_FILE).write_text(f"{json.dumps(report['points'], indent=1)}\n", encoding="utf-8")
    for outcome in outcomes:
        for name, content in outcome.attachments.items():
            (folder / ATTACHMENTS).mkdir(exist_ok=True)
            text = redactor.text(content.decode("utf-8", "replace"))
            (folder / ATTACHMENTS / f"{outcome.assumption.id}-{name}").write_text(text, encoding="utf-8")


def to_text(report: Report) -> str:
    """Return the report as text: what differs first, then what holds, then what was not tried, by reason."""
    versions = report["machine"]["versions"].items()
    lines = [title(report), ", ".join(f"{name} {version}" for name, version in versions if version), ""]
    for entry in _in_state(report, "differs"):
        lines += [f"DIFFERS  {entry['id']}: {entry['statement']}"]
        details = {"expected": entry["expected"], "seen": entry["seen"], "source": entry["source"]}
        lines += [f"  {name}: {printable(str(text))}" for name, text in {**details, **entry["means"]}.items()]
        lines.append("")
    lines += [f"HOLDS  {entry['id']}: {entry['statement']}" for entry in _in_state(report, "holds")]
    lines += ["", *(f"NOT TRIED, {reason}: {', '.join(names)}" for reason, names in _not_tried(report).items())]
    lines += [f"TIME  {point['id']}: {point['seconds'] * 1e6:.1f} us" for point in report["points"]]
    return "".join(f"{line}\n" for line in lines)


def to_html(report: Report) -> str:
    """Return the text of the report as a page that needs no other file."""
    text = html.escape(to_text(report))
    return _PAGE % re.sub(r"(?m)^DIFFERS .*$", r"<b>\g<0></b>", text)


def title(report: Report) -> str:
    """Return one line: how many hold, differ and were not tried, and where."""
    counts, machine = report["counts"], report["machine"]
    kind = "simulated " if machine["simulated"] else ""
    strict = " (strict)" if machine["strict"] else ""
    where = f"{kind}{machine['generation'] or 'card'}{strict}, SynapseAI {machine['release'] or 'unknown'}"
    return (
        f"{counts['holds']} assumptions hold, {counts['differs']} differ, {counts['not tried']} were not tried on a "
        f"{where}, {report['date']}"
    )


def _in_state(report: Report, state: str) -> list[Entry]:
    return [entry for entry in report["entries"] if entry["state"] == state]


def _not_tried(report: Report) -> dict[str, list[str]]:
    """Return the ids of what was not tried, by reason."""
    names: dict[str, list[str]] = {}
    for entry in _in_state(report, "not tried"):
        names.setdefault(entry["reason"], []).append(entry["id"])
    return names


def _machine(system: SystemInfo, target: Target, redactor: Redactor) -> Machine:
    versions = {
        "torch": system.torch,
        "bridge": system.bridge.version,
        "driver": ", ".join(system.driver_versions) or None,
        "Python": system.python,
        "kernel": platform.release(),
        "hpu-doctor": __version__,
    }
    return {
        "simulated": target.simulated,
        "strict": target.strict,
        "release": target.release,
        "generation": target.generation,
        "cards": target.cards,
        # A kernel's version may have its builder's name.
        "versions": {name: None if value is None else redactor.text(value) for name, value in versions.items()},
    }


def _entry(outcome: Outcome, redactor: Redactor) -> Entry:
    assumption = outcome.assumption
    expected, seen = assumption.expected, redactor.value(outcome.seen)
    if outcome.state == "differs":
        expected, seen = difference(expected, seen)
    return {
        "id": assumption.id,
        "subject": assumption.subject,
        "statement": assumption.statement,
        "source": assumption.source,
        "claim": assumption.claim,
        "packages": sorted(assumption.means),
        "state": outcome.state,
        "expected": describe(expected),
        "seen": None if outcome.state == "not tried" else describe(seen)[:_MAX_SEEN],
        "reason": redactor.text(outcome.reason),
        "means": dict(assumption.means) if outcome.state == "differs" else {},
        "seconds": round(outcome.seconds, 2),
    }


def _points(outcome: Outcome, target: Target) -> list[Point]:
    if not outcome.assumption.is_point or outcome.state != "holds":
        return []
    points: list[Point] = outcome.seen
    for point in points:
        if target.simulated:
            point["simulated"] = True
    return points
