"""The command `hpu-doctor verify`: chooses assumptions, runs them, and writes the report."""

import datetime as dt
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpu_core import info
from hpu_doctor.verify import register, report, runner
from hpu_doctor.verify.assumption import Assumption
from hpu_doctor.verify.privacy import Redactor
from hpu_doctor.verify.schema import Report


def choose(names: Sequence[str] = (), *, quick: bool = False) -> list[Assumption]:
    """Return the assumptions of these ids, or all.

    Args:
        names: The ids; empty for all.
        quick: Whether to leave out those that take long.

    Raises:
        ValueError: An id is unknown.
    """
    known = {assumption.id: assumption for assumption in register.assumptions()}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"`--only` must be an id of the register, got {', '.join(map(repr, unknown))}")
    chosen = [known[name] for name in names] if names else list(known.values())
    return [assumption for assumption in chosen if assumption.quick or not quick]


def run(  # noqa: PLR0913 - the options of the command.
    assumptions: Sequence[Assumption],
    folder: Path,
    environ: Mapping[str, str],
    *,
    all_cards: bool = False,
    minutes: float | None = None,
    points: bool = False,
    fork: bool = False,
) -> Report:
    """Try assumptions, and write the report to an existing folder.

    Args:
        assumptions: The assumptions.
        folder: Folder of the report.
        environ: Environment of the programs.
        all_cards: Whether to try what needs all cards.
        minutes: Time after which no further program starts.
        points: Whether to measure times on simulated cards.
        fork: Whether to fork the programs from one process.
    """
    # First, because collecting the facts imports the bridge, which sets variables.
    environ = dict(environ)
    redactor = Redactor.of_this_machine(environ)
    start = time.monotonic()
    system = info.collect()
    target = runner.Target.of(system, environ)
    outcomes = []
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".scratch-") as scratch:
        seconds = None if minutes is None else 60 * minutes
        results = runner.run(
            assumptions,
            target,
            Path(scratch),
            environ,
            all_cards=all_cards,
            points=points,
            seconds=seconds,
            fork=fork,
        )
        for number, outcome in enumerate(results, start=1):
            _show_progress(number, len(assumptions), outcome)
            outcomes.append(outcome)
    date = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    result = report.build(outcomes, system, target, redactor, date=date, seconds=time.monotonic() - start)
    report.write(result, outcomes, folder, redactor)
    return result


def summarize(result: Report) -> str:
    """Return the first line of the report, and the ids of what differs."""
    differing = [entry["id"] for entry in result["entries"] if entry["state"] == "differs"]
    return "\n".join([report.title(result), *(f"differs: {name}" for name in differing)])


def _show_progress(number: int, count: int, outcome: runner.Outcome) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{number}/{count} {outcome.assumption.id}: {outcome.state}")
        sys.stderr.write("\n" if number == count else "")
        sys.stderr.flush()
