"""Runs the programs of assumptions, each in a process of its own, one after the other."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from hpu_core import discovery
from hpu_core.info import SystemInfo
from hpu_doctor.verify import program
from hpu_doctor.verify.assumption import Assumption, is_expected

State = Literal["holds", "differs", "not tried"]

_COMMAND: Final = (sys.executable, "-m", "hpu_doctor.verify.program")
_POLL_SECONDS: Final = 0.02
_OUTPUT_LINES: Final = 4
_MAX_OUTPUT_BYTES: Final = 1 << 16
# Settings of a job or a user, whose defaults the programs are to see, or that would write elsewhere.
_DROPPED: Final = re.compile(
    "HABANA_PROFILE|HLS_MODULE_ID|ID|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|(PT|OMPI|SLURM|PMIX?)_.*"
)
_FOLDERS: Final = ("HABANA_LOGS", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
# It says nothing of an assumption: another process has the card.
_IN_USE: Final = "Device acquire failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine that is tried.

    Attributes:
        release: SynapseAI release, None if it is unknown.
        generation: Generation of its cards, None if it is unknown.
        cards: Number of cards that can be used.
        simulated: Whether they are simulated.
    """

    release: str | None
    generation: str | None
    cards: int
    simulated: bool

    @classmethod
    def of(cls, system: SystemInfo) -> "Target":
        """Return this machine."""
        return cls(
            release=".".join(map(str, system.synapse.version.release[:3])) if system.synapse else None,
            generation=next((device.generation for device in system.devices if device.is_operational), None),
            cards=len(discovery.usable_modules(system.devices)),
            simulated=system.bridge.simulated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of an assumption.

    Attributes:
        assumption: The assumption.
        state: Whether it holds here.
        seen: What its program returned, or how it ended; None if it was not tried.
        reason: Why it was not tried, else "".
        seconds: Time of its program.
    """

    assumption: Assumption
    state: State
    seen: Any = None
    reason: str = ""
    seconds: float = 0.0


def run(
    assumptions: Sequence[Assumption],
    target: Target,
    scratch: Path,
    environ: Mapping[str, str],
    *,
    all_devices: bool = False,
) -> Iterator[Outcome]:
    """Try assumptions, and yield the outcome of each, in their order.

    Args:
        assumptions: The assumptions.
        target: The machine.
        scratch: Existing folder for what programs write; nothing is left in it.
        environ: Environment of the programs, of which settings of a job or of the bridge are dropped.
        all_devices: Whether to try what needs all cards.
    """
    base = _program_environ(environ, scratch)
    for assumption in assumptions:
        reason = _skip_reason(assumption, target, all_devices=all_devices)
        if reason:
            yield Outcome(assumption=assumption, state="not tried", reason=reason)
        else:
            yield _try(assumption, target, scratch / assumption.id, base)


def _try(assumption: Assumption, target: Target, folder: Path, base: Mapping[str, str]) -> Outcome:
    """Run a program in one process, or one per rank, and return the outcome; nothing is left of it."""
    start = time.monotonic()
    folder.mkdir(exist_ok=True)
    for name, text in assumption.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    mode = {} if assumption.mode is None else {"PT_HPU_LAZY_MODE": "1" if assumption.mode == "lazy" else "0"}
    environ = {**base, **mode, **assumption.variables}
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank, variables in enumerate(_rank_variables(target.cards) if assumption.ranks else [{}]):
            with _output_file(folder, rank).open("wb") as output:
                process = subprocess.Popen(  # noqa: S603 - this package's own module.
                    (*_COMMAND, assumption.id),
                    env={**environ, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    # Its own processes end with it, and Ctrl-C is this process's.
                    start_new_session=True,
                )
            ranks.append(process)
        ending = _wait(ranks, assumption.seconds)
        return replace(_outcome(assumption, folder, len(ranks), ending), seconds=time.monotonic() - start)
    finally:
        for process in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _outcome(assumption: Assumption, folder: Path, ranks: int, ending: str | None) -> Outcome:
    """Return the outcome of what the ranks wrote to a folder, and how they ended."""
    known = Outcome(assumption=assumption, state="differs")
    results = [_read_result(program.result_file(folder, rank)) for rank in range(ranks)]
    error = next((result["error"] for result in results if "error" in result), None)
    reason = next((result["not_tried"] for result in results if "not_tried" in result), None)
    if error is None and ending is not None:
        error = f"the program {ending}{_last_lines(folder, ranks)}"
    if error is not None:
        return replace(known, state="not tried", reason=error) if _IN_USE in error else replace(known, seen=error)
    if reason is not None:
        return replace(known, state="not tried", reason=reason)
    seen = results[0].get("seen")
    state: State = "holds" if is_expected(assumption.expected, seen) else "differs"
    return replace(known, state=state, seen=seen)


def _output_file(folder: Path, rank: int) -> Path:
    return folder / f"output-{rank}.txt"


def _last_lines(folder: Path, ranks: int) -> str:
    outputs = [_output_file(folder, rank).read_bytes()[-_MAX_OUTPUT_BYTES:] for rank in range(ranks)]
    lines = [line for text in outputs for line in text.decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:]]
    return f": {' | '.join(lines)}" if lines else ""


def _wait(ranks: "Sequence[subprocess.Popen[bytes]]", seconds: float) -> str | None:
    """Wait until all ranks have ended, or one has failed; return how it ended, None if all have succeeded."""
    deadline = time.monotonic() + seconds
    while True:
        codes = [process.poll() for process in ranks]
        failed = next(filter(None, codes), None)
        if failed is not None:
            return f"was ended by {signal.Signals(-failed).name}" if failed < 0 else f"ended with exit code {failed}"
        if None not in codes:
            return None
        if time.monotonic() > deadline:
            return f"did not end within {seconds:g} seconds"
        time.sleep(_POLL_SECONDS)


def _skip_reason(assumption: Assumption, target: Target, *, all_devices: bool) -> str:
    if not assumption.applies_to(target.release, target.generation):
        return f"claimed for {assumption.scope}, not for this machine"
    if assumption.ranks and not all_devices:
        return "it needs all cards of the machine: --all-cards"
    if assumption.ranks and target.cards < 2:  # noqa: PLR2004 - a job of several ranks.
        return "it needs two cards"
    return ""


def _rank_variables(count: int) -> list[dict[str, str]]:
    """Return the variables of each rank of a job on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def _program_environ(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the environment in which programs see defaults, and in which libraries write to the scratch folder."""
    kept = {name: value for name, value in environ.items() if not _DROPPED.fullmatch(name)}
    folders = {name: str(scratch / name.lower()) for name in _FOLDERS}
    for folder in folders.values():
        Path(folder).mkdir(exist_ok=True)
    return {**kept, **folders, "PYTHONDONTWRITEBYTECODE": "1"}


def _read_result(file: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result
