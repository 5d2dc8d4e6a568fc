"""The report, and its folder: `report.json` and `report.txt`."""

import getpass
import json
import platform
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hpu_core.discovery import printable
from hpu_core.info import SystemInfo
from hpu_doctor.__about__ import __version__
from hpu_doctor.verify.assumption import describe, difference
from hpu_doctor.verify.runner import Outcome, State, Target

SCHEMA: Final = 1
JSON_FILE: Final = "report.json"
TEXT_FILE: Final = "report.txt"

STATES: Final[tuple[State, ...]] = ("differs", "not tried", "holds")
_MAX_SEEN: Final = 2000
# It needs two parts, so that "1/2" and "and/or" stay.
_PATH: Final = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/(?:[^\s/'\":,;<>()\[\]]+/)+[^\s/'\":,;<>()\[\]]*")


def build(
    outcomes: Sequence[Outcome], system: SystemInfo, target: Target, *, date: str, seconds: float
) -> dict[str, Any]:
    """Return the report on outcomes as plain data that `json` can serialize.

    It has the versions of the machine, the number of entries by state, and the entries in the order of the outcomes.
    An entry that differs has, of a table, only the cases that differ, and `means`: one sentence for each package that
    relies on it.

    Args:
        outcomes: The outcomes, in the order of the register.
        system: Cards and software.
        target: The machine that was tried.
        date: Day of the run, ISO.
        seconds: Time of the run.
    """
    counts = Counter(outcome.state for outcome in outcomes)
    return {
        "schema_version": SCHEMA,
        "date": date,
        "seconds": round(seconds, 1),
        "machine": {
            "simulated": target.simulated,
            "release": target.release,
            "generation": target.generation,
            "cards": target.cards,
            "versions": {
                "torch": system.torch,
                "bridge": system.bridge.version,
                "driver": ", ".join(system.driver_versions) or None,
                "Python": system.python,
                "kernel": platform.release(),
                "hpu-doctor": __version__,
            },
        },
        "counts": {state: counts[state] for state in STATES},
        "entries": [_entry(outcome) for outcome in outcomes],
    }


def write(report: Mapping[str, Any], folder: Path) -> None:
    """Write the files of a report to an existing folder."""
    (folder / JSON_FILE).write_text(f"{json.dumps(report, indent=1)}\n", encoding="utf-8")
    (folder / TEXT_FILE).write_text(to_text(report), encoding="utf-8")


def to_text(report: Mapping[str, Any]) -> str:
    """Return the report as text: what differs first, then what holds, then what was not tried, by reason."""
    versions = report["machine"]["versions"].items()
    lines = [title(report), ", ".join(f"{name} {version}" for name, version in versions if version), ""]
    for entry in in_state(report, "differs"):
        lines += [f"DIFFERS  {entry['id']}: {entry['statement']}"]
        details = {"expected": entry["expected"], "seen": entry["seen"], "source": entry["source"]}
        lines += [f"  {name}: {printable(str(text))}" for name, text in {**details, **entry["means"]}.items()]
        lines.append("")
    lines += [f"HOLDS  {entry['id']}: {entry['statement']}" for entry in in_state(report, "holds")]
    not_tried: dict[str, list[str]] = {}
    for entry in in_state(report, "not tried"):
        not_tried.setdefault(entry["reason"], []).append(entry["id"])
    lines += ["", *(f"NOT TRIED, {reason}: {', '.join(names)}" for reason, names in not_tried.items())]
    return "".join(f"{line}\n" for line in lines)


def title(report: Mapping[str, Any]) -> str:
    """Return one line: how many hold, differ and were not tried, and where."""
    counts, machine = report["counts"], report["machine"]
    kind = "simulated " if machine["simulated"] else ""
    where = f"{kind}{machine['generation'] or 'card'}, SynapseAI {machine['release'] or 'unknown'}"
    return (
        f"{counts['holds']} assumptions hold, {counts['differs']} differ, {counts['not tried']} were not tried on a "
        f"{where}, {report['date']}"
    )


def in_state(report: Mapping[str, Any], state: State) -> list[dict[str, Any]]:
    """Return the entries in a state."""
    return [entry for entry in report["entries"] if entry["state"] == state]


def remove_names(text: str) -> str:
    """Return a text without paths, the host name and the user name of this machine."""
    text = _PATH.sub("<path>", text)
    host = socket.gethostname()
    for name in (host, host.partition(".")[0], _user()):
        if name not in {"", "root", "localhost"}:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "<name>", text, flags=re.IGNORECASE)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user that it does not list.
        return ""


def _entry(outcome: Outcome) -> dict[str, Any]:
    assumption = outcome.assumption
    expected, seen = assumption.expected, outcome.seen
    if outcome.state == "differs":
        expected, seen = difference(expected, seen)
    return {
        "id": assumption.id,
        "subject": assumption.subject,
        "statement": assumption.statement,
        "source": assumption.source,
        "scope": assumption.scope,
        "packages": sorted(assumption.means),
        "state": outcome.state,
        "expected": describe(expected),
        "seen": None if outcome.state == "not tried" else remove_names(describe(seen))[:_MAX_SEEN],
        "reason": remove_names(outcome.reason),
        "means": dict(assumption.means) if outcome.state == "differs" else {},
        "seconds": round(outcome.seconds, 2),
    }
