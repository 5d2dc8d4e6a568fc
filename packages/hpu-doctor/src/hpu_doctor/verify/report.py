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
from hpu_doctor.verify.assumption import describe
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
# Packages of a user's job. The others are tools.
_TRAINING: Final = frozenset({"hpu-core", "hpu-ddp", "hpu-fsdp", "hpu-deepspeed", "hpu-precision"})
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;"
    "border-bottom:1px solid #ddd}th{white-space:nowrap}td{width:100%}code{overflow-wrap:anywhere}"
    ".differs{border-left:4px solid #b00;padding-left:1rem}"
)


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
    lines = [title(report), ""]
    for entry in _in_state(report, "differs"):
        lines += [f"DIFFERS  {entry['id']}: {entry['statement']}"]
        details = {"expected": entry["expected"], "seen": entry["seen"], "source": entry["source"]}
        lines += [f"  {name}: {printable(str(text))}" for name, text in {**details, **entry["means"]}.items()]
        lines.append("")
    lines += [f"HOLDS  {entry['id']}: {entry['statement']}" for entry in _in_state(report, "holds")]
    lines += ["", *(f"NOT TRIED, {reason}: {', '.join(names)}" for reason, names in _not_tried(report).items())]
    return "".join(f"{line}\n" for line in lines)


def to_html(report: Report) -> str:
    """Return the report as a page that needs no other file."""
    parts = [f"<h1>{html.escape(title(report))}</h1>"]
    machine = report["machine"]
    versions = [*machine["versions"].items(), ("generation", machine["generation"]), ("cards", machine["cards"])]
    parts.append(_table((name, _code(value or "unknown")) for name, value in versions))
    parts.append(f"<h2>Differs</h2>{'' if report['counts']['differs'] else '<p>Nothing.</p>'}")
    for entry in _in_state(report, "differs"):
        rows = [("expected", _code(entry["expected"])), ("seen", _code(entry["seen"]))]
        texts = {"source": entry["source"], **entry["means"]}
        rows += [(name, _markup(text)) for name, text in texts.items()]
        parts.append(
            f'<div class="differs"><h3>{entry["id"]}</h3><p>{_markup(entry["statement"])}</p>{_table(rows)}</div>'
        )
    skipped = ((html.escape(reason), _code(", ".join(names))) for reason, names in _not_tried(report).items())
    held = ((entry["id"], _markup(entry["statement"])) for entry in _in_state(report, "holds"))
    parts.append(f"<h2>Holds</h2>{_table(held)}<h2>Not tried</h2>{_table(skipped)}")
    if report["points"]:
        points = ((point["id"], f"{point['seconds'] * 1e6:.1f} us") for point in report["points"])
        parts.append(f"<h2>Points for the planner</h2>{_table(points)}")
    page = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>hpu-doctor verify</title>'
        f"<style>{_STYLE}</style></head><body>\n{page}\n</body></html>\n"
    )


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
    """Return the entries in a state; those on which training rests come before those of tools."""
    entries = [entry for entry in report["entries"] if entry["state"] == state]
    return sorted(entries, key=lambda entry: _TRAINING.isdisjoint(entry["packages"]))


def _not_tried(report: Report) -> dict[str, list[str]]:
    """Return the ids of what was not tried, by reason."""
    names: dict[str, list[str]] = {}
    for entry in _in_state(report, "not tried"):
        names.setdefault(entry["reason"], []).append(entry["id"])
    return names


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{name}</th><td>{value}</td></tr>' for name, value in rows)}</table>"


def _code(value: object) -> str:
    return f"<code>{html.escape(str(value))}</code>"


def _markup(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


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
    seen = None if outcome.state == "not tried" else describe(redactor.value(outcome.seen))[:_MAX_SEEN]
    return {
        "id": assumption.id,
        "subject": assumption.subject,
        "statement": assumption.statement,
        "source": assumption.source,
        "claim": assumption.claim,
        "packages": sorted(assumption.means),
        "state": outcome.state,
        "expected": describe(assumption.expected),
        "seen": seen,
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
