"""Plan every program of `corpus.toml`, and print a table; docs/records/planner-corpus.md sums it up.

    python packages/hpu-sim/third_party/corpus/run.py [WORD]

WORD selects programs by their titles. TORCHVISION_FOLDER names the folder of torchvision, which most libraries must not
see. The exit code is 1 if fewer programs can be planned than the table must have.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from hpu_sim.common.formatting import format_bytes, format_range

_FOLDER: Final = Path(__file__).parent
# Processor time, which a busy machine does not change.
_TIME_LIMIT: Final = 300
#: Programs that may fail.
_MAY_FAIL: Final = 2


@dataclass(frozen=True)
class Result:
    """Plan of a program, or why there is none.

    Attributes:
        title: Title of the program.
        plan: Its plan as JSON; None if it could not be planned.
        message: Why not.
        seconds: Processor time.
    """

    title: str
    plan: dict[str, Any] | None
    message: str
    seconds: float


def read() -> list[dict[str, Any]]:
    """Return the entries of the corpus."""
    entries: list[dict[str, Any]] = tomllib.loads((_FOLDER / "corpus.toml").read_text(encoding="utf-8"))["plan"]
    return entries


def make(entry: dict[str, Any]) -> Result:
    """Plan the program of an entry."""
    program, *arguments = shlex.split(entry["run"])
    paths = [os.environ.get("TORCHVISION_FOLDER", "")] if entry.get("torchvision") else []
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        options = [*shlex.split(entry.get("options", "")), f"--json={path}"]
        command = ["hpu-sim", "plan", *options, str(_FOLDER / "programs" / program), *arguments]
        done = subprocess.run(
            command, cwd=folder, env=variables, preexec_fn=_limit, capture_output=True, text=True, check=False
        )
        plan = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Result(entry["title"], plan, "" if plan is not None else _message(done.stderr), seconds)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_TIME_LIMIT, _TIME_LIMIT))


def _message(errors: str) -> str:
    """Return the end of an error: the line of the plan's own, or the exception of the program."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    own = next((line for line in lines if line.startswith("Error: ")), "no output")
    own = own if "program itself failed" not in own else lines[-1]
    return own.removeprefix("Error: ").replace(f"{_FOLDER / 'programs'}/", "").replace("|", "\\|")


def table(results: list[Result]) -> str:
    """Return the page."""
    planned = sum(each.plan is not None for each in results)
    rows = "\n".join(map(_row, results))
    date = dt.datetime.now(tz=dt.timezone.utc).date()
    return f"""# Corpus of the planner

Scripts and models of the package index, written as the examples of their libraries are. Models are made of
configurations, and nothing is downloaded.

{date}, `packages/hpu-sim/third_party/corpus/run.py`, which `nox -s third_party` runs, two cores, predicted, not
measured. **{planned} of {len(results)} are planned.** The times are of one step on GAUDI2. The last column is the
processor time of the plan here, imports included.

| program | cards | peak memory | step | planned in |
|---|---|---|---|---|
{rows}
"""


def _row(result: Result) -> str:
    if result.plan is None:
        return f"| {result.title} | - | not planned: {result.message} | - | {result.seconds:.0f} s |"
    (each,) = result.plan["strategies"]
    step = format_range(each["step"]["fast_seconds"], each["step"]["slow_seconds"])
    peak = format_bytes(each["memory"]["peak_bytes"])
    return f"| {result.title} | {each['world_size']} | {peak} | {step} | {result.seconds:.0f} s |"


def main() -> int:
    """Plan the programs whose titles have the word of the command line, all without one."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    results = []
    for entry in read():
        if word in entry["title"]:
            result = make(entry)
            print(
                f"{result.title}: {result.message or 'planned'} ({result.seconds:.0f} s)", file=sys.stderr, flush=True
            )
            results.append(result)
    print(table(results), end="")
    return int(sum(each.plan is None for each in results) > _MAY_FAIL)


if __name__ == "__main__":
    sys.exit(main())
