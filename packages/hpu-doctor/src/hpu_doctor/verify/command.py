"""The command `hpu-doctor verify`: chooses assumptions, runs them, and writes the report."""

import contextlib
import datetime as dt
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hpu_core import bridge, info
from hpu_doctor.verify import register, report, runner
from hpu_doctor.verify.assumption import Assumption
from hpu_doctor.verify.runner import Outcome

_INTERRUPTED: Final = "the run was interrupted"


class NoCardError(Exception):
    """This machine has no card or no bridge; the message says what is needed."""


def choose(names: Sequence[str] = ()) -> list[Assumption]:
    """Return the assumptions of these ids, or all.

    Raises:
        ValueError: An id is unknown.
    """
    known = {assumption.id: assumption for assumption in register.assumptions()}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"`--only` must be an id of the register, got {', '.join(map(repr, unknown))}")
    return [known[name] for name in names] if names else list(known.values())


def run(
    assumptions: Sequence[Assumption], folder: Path, environ: Mapping[str, str], *, all_devices: bool = False
) -> dict[str, Any]:
    """Try assumptions, and write the report. Ctrl-C ends the run; the report then has what was tried.

    Args:
        assumptions: The assumptions.
        folder: Folder of the report, new or empty.
        environ: Environment of the programs.
        all_devices: Whether to try what needs all cards.

    Raises:
        ValueError: The folder is not empty.
        NoCardError: There is no card to try, or no bridge.
        OSError: The report cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"`--out` must be a new or empty folder, got {str(folder)!r}")
    start = time.monotonic()
    system = info.collect()
    target = runner.Target.of(system)
    if not bridge.is_installed():
        raise NoCardError(
            "verify needs a card and the bridge, `habana_frameworks`: run it in Intel's PyTorch image for Gaudi, or on "
            "simulated cards by `hpu-sim run hpu-doctor verify`"
        )
    if not target.cards:
        raise NoCardError("verify needs a card, and none of this machine can be used: run `hpu-info`")
    outcomes: list[Outcome] = []
    folder.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".scratch-")
    with scratch as path, contextlib.suppress(KeyboardInterrupt):
        for outcome in runner.run(assumptions, target, Path(path), environ, all_devices=all_devices):
            outcomes.append(outcome)  # noqa: PERF402 - an interruption keeps what was tried.
    left = assumptions[len(outcomes) :]
    outcomes += [Outcome(assumption=assumption, state="not tried", reason=_INTERRUPTED) for assumption in left]
    date = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    result = report.build(outcomes, system, target, date=date, seconds=time.monotonic() - start)
    report.write(result, folder)
    return result


def is_complete(result: dict[str, Any]) -> bool:
    """Return whether the run of a report came to its end."""
    return not any(entry["reason"] == _INTERRUPTED for entry in result["entries"])


def summarize(result: dict[str, Any]) -> str:
    """Return the first line of the report, and the ids of what differs."""
    return "\n".join([report.title(result), *(f"differs: {each['id']}" for each in report.in_state(result, "differs"))])
