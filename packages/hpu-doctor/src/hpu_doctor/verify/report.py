"""The report, and its folder: `report.json` and `report.txt`."""

import json
import platform
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypedDict

from hpu_core.discovery import printable
from hpu_core.info import SystemInfo
from hpu_doctor.__about__ import __version__
from hpu_doctor.verify.assumption import describe, difference
from hpu_doctor.verify.privacy import TextMask
from hpu_doctor.verify.runner import Outcome, State, Target

SCHEMA: Final = 1
JSON_FILE: Final = "report.json"
TEXT_FILE: Final = "report.txt"

STATES: Final[tuple[State, ...]] = ("differs", "not tried", "holds")
_MAX_SEEN: Final = 2000


class Machine(TypedDict):
    """The machine, without what identifies it: None for what is unknown; `strict` is the simulator's mode."""

    simulated: bool
    strict: bool
    release: str | None
    generation: str | None
    cards: int
    versions: dict[str, str | None]


class Entry(TypedDict):
    """Result of an assumption, with the fields of the register that have no word here.

    Attributes:
        packages: Packages that rely on it.
        state: Whether it holds on this machine.
        expected: Expected value, as text; of a table that differs, only the cases that do.
        seen: Value that the program returned, likewise; None if it has not been tried.
        reason: Why it was not tried, else "".
        means: One sentence per package that a difference concerns; empty unless the state is "differs".
        seconds: Time of the program.
    """

    id: str
    subject: str
    statement: str
    source: str
    scope: str
    packages: list[str]
    state: State
    expected: str
    seen: str | None
    reason: str
    means: dict[str, str]
    seconds: float


class Report(TypedDict):
    """The report.

    Attributes:
        date: Day of the run, ISO.
        seconds: Time of the run.
        counts: Number of entries by state.
        entries: Results, in the order of the register.
    """

    schema_version: int
    date: str
    seconds: float
    machine: Machine
    counts: dict[State, int]
    entries: list[Entry]


def build(  # noqa: PLR0913 - the parts of a report.
    outcomes: Iterable[Outcome],
    system: SystemInfo,
    target: Target,
    mask: TextMask,
    *,
    date: str,
    seconds: float,
) -> Report:
    """Return the report on outcomes.

    Args:
        outcomes: The outcomes, in the order of the register.
        system: Cards and software.
        target: The machine that was tried.
        mask: Removes what identifies the machine.
        date: Day of the run, ISO.
        seconds: Time of the run.
    """
    outcomes = list(outcomes)
    counts = Counter(outcome.state for outcome in outcomes)
    versions = {
        "torch": system.torch,
        "bridge": system.bridge.version,
        "driver": ", ".join(system.driver_versions) or None,
        "Python": system.python,
        # It may have its builder's name.
        "kernel": mask.text(platform.release()),
        "hpu-doctor": __version__,
    }
    return {
        "schema_version": SCHEMA,
        "date": date,
        "seconds": round(seconds, 1),
        "machine": {
            "simulated": target.simulated,
            "strict": target.strict,
            "release": target.release,
            "generation": target.generation,
            "cards": target.cards,
            "versions": versions,
        },
        "counts": {state: counts[state] for state in STATES},
        "entries": [_entry(outcome, mask) for outcome in outcomes],
    }


def write(report: Report, folder: Path) -> None:
    """Write the files of a report to an existing folder."""
    (folder / JSON_FILE).write_text(f"{json.dumps(report, indent=1)}\n", encoding="utf-8")
    (folder / TEXT_FILE).write_text(to_text(report), encoding="utf-8")


def to_text(report: Report) -> str:
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


def in_state(report: Report, state: State) -> list[Entry]:
    """Return the entries in a state."""
    return [entry for entry in report["entries"] if entry["state"] == state]


def _entry(outcome: Outcome, mask: TextMask) -> Entry:
    assumption = outcome.assumption
    expected, seen = assumption.expected, mask.value(outcome.seen)
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
        "seen": None if outcome.state == "not tried" else describe(seen)[:_MAX_SEEN],
        "reason": mask.text(outcome.reason),
        "means": dict(assumption.means) if outcome.state == "differs" else {},
        "seconds": round(outcome.seconds, 2),
    }
