"""Runs the programs of assumptions, each in a process of its own, one after the other."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from hpu_core import discovery
from hpu_core.info import SystemInfo
from hpu_doctor.verify import program
from hpu_doctor.verify.assumption import HARDWARE, STRICT, Assumption, holds

State = Literal["holds", "differs", "not tried"]
STRICT_VARIABLE: Final = "HPU_SIM_STRICT"

_COMMAND: Final = (sys.executable, "-m", "hpu_doctor.verify.program")
# Processes that load the bridge while another runs its program: loading opens no card and takes longer than most.
_AHEAD: Final = 2
_POLL_SECONDS: Final = 0.02
_OUTPUT_LINES: Final = 4
_MAX_OUTPUT_BYTES: Final = 1 << 16
_MAX_ATTACHMENT_BYTES: Final = 1 << 24
# Settings of a job or a user, whose defaults the programs are to see, or that would write elsewhere.
_DROPPED: Final = re.compile(
    "HABANA_PROFILE|HLS_MODULE_ID|ID|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|(PT|OMPI|SLURM|PMIX?)_.*"
)
_FOLDERS: Final = ("HABANA_LOGS", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
# Errors that say nothing of an assumption: another process has the card, or the program could not write.
_ENVIRONMENT_ERRORS: Final = ("Device acquire failed", "No space left on device")
_MIN_FREE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine that is tried.

    Attributes:
        release: SynapseAI release, None if it is unknown.
        generation: Generation of its cards, None if it is unknown.
        cards: Number of cards that can be used.
        simulated: Whether they are simulated.
        strict: Whether the simulator is in strict mode.
        module: Module of the card for programs that use one; None leaves it to the bridge.
    """

    release: str | None
    generation: str | None
    cards: int
    simulated: bool
    strict: bool = False
    module: int | None = None

    @classmethod
    def of(cls, system: SystemInfo, environ: Mapping[str, str]) -> "Target":
        """Return this machine."""
        modules = discovery.usable_modules(system.devices)
        busy = {holder.module_id for holder in discovery.find_holders().processes}
        return cls(
            release=".".join(map(str, system.synapse.version.release[:3])) if system.synapse else None,
            generation=next((device.generation for device in system.devices if device.is_operational), None),
            cards=len(modules),
            simulated=system.bridge.simulated,
            strict=environ.get(STRICT_VARIABLE, "") not in {"", "0"},
            module=next((module for module in modules if module not in busy), None),
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
        attachments: Files that it left, by name.
    """

    assumption: Assumption
    state: State
    seen: Any = None
    reason: str = ""
    seconds: float = 0.0
    attachments: Mapping[str, bytes] = field(default_factory=dict)


def run(  # noqa: PLR0913 - keyword arguments of one call.
    assumptions: Sequence[Assumption],
    target: Target,
    scratch: Path,
    environ: Mapping[str, str],
    *,
    all_cards: bool = False,
    points: bool = False,
    seconds: float | None = None,
) -> Generator[Outcome, None, None]:
    """Try assumptions, and yield the outcome of each, in their order.

    Args:
        assumptions: The assumptions.
        target: The machine.
        scratch: Existing folder for what programs write; nothing is left in it.
        environ: Environment of the programs, of which settings of a job or of the bridge are dropped.
        all_cards: Whether to try what needs all cards.
        points: Whether to measure times on a simulated card as well.
        seconds: Time after which no further program starts.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    base = _program_environ(environ, scratch)
    reasons = [_skip_reason(assumption, target, all_cards=all_cards, points=points) for assumption in assumptions]
    left = (
        _Processes(assumption, target, scratch / assumption.id, base)
        for assumption, reason in zip(assumptions, reasons, strict=True)
        if not reason
    )
    started: deque[_Processes] = deque()
    try:
        for assumption, reason in zip(assumptions, reasons, strict=True):
            if reason:
                yield Outcome(assumption=assumption, state="not tried", reason=reason)
            elif deadline is not None and time.monotonic() > deadline:
                yield Outcome(assumption=assumption, state="not tried", reason="the time of the run was up")
            else:
                started.extend(itertools.islice(left, 1 + _AHEAD - len(started)))
                with contextlib.closing(started[0]) as processes:
                    outcome = processes.finish()
                started.popleft()
                yield outcome
    finally:
        for processes in started:
            processes.close()


class _Processes:
    """The processes of one program: one, or one per rank. They load the bridge, and then wait for its id."""

    def __init__(self, assumption: Assumption, target: Target, folder: Path, base: Mapping[str, str]) -> None:
        self._assumption, self._folder = assumption, folder
        folder.mkdir(exist_ok=True)
        for name, text in assumption.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        environ = {**base, **_mode_variables(assumption), **assumption.variables}
        ranks = _rank_variables(assumption, target)
        self._ranks = [self._start({**environ, **variables}, rank) for rank, variables in enumerate(ranks)]

    def _start(self, environ: Mapping[str, str], rank: int) -> "subprocess.Popen[str]":
        with self._output_file(rank).open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - this package's own module.
                _COMMAND,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                text=True,
                # Its own processes end with it, and Ctrl-C is this process's.
                start_new_session=True,
            )

    def finish(self) -> Outcome:
        """Run the program to its end, and return the outcome."""
        start = time.monotonic()
        for process in self._ranks:
            _send(process, f"{self._assumption.id}\n")
        ending = _wait(self._ranks, self._assumption.seconds)
        return replace(self._outcome(ending), seconds=time.monotonic() - start)

    def close(self) -> None:
        """End the processes, and remove what they wrote."""
        for process in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _send(process, "")
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _outcome(self, ending: str | None) -> Outcome:
        assumption, known = self._assumption, Outcome(assumption=self._assumption, state="differs")
        results = [_read_result(program.result_file(self._folder, rank)) for rank in range(len(self._ranks))]
        error = next((result["error"] for result in results if "error" in result), None)
        reason = next((result["not_tried"] for result in results if "not_tried" in result), None)
        if error is None and ending is not None:
            error = f"the program {ending}{self._last_lines()}"
        if error is not None:
            if any(text in error for text in _ENVIRONMENT_ERRORS):
                return replace(known, state="not tried", reason=error)
            if shutil.disk_usage(self._folder).free < _MIN_FREE_BYTES:
                return replace(known, state="not tried", reason=f"the disk is full: {error}")
            return replace(known, seen=error)
        if reason is not None:
            return replace(known, state="not tried", reason=reason)
        seen = results[0].get("seen")
        files = sorted((self._folder / program.ATTACHMENTS).glob("*"))
        attachments = {file.name: file.read_bytes() for file in files if file.stat().st_size <= _MAX_ATTACHMENT_BYTES}
        state: State = "holds" if holds(assumption.expected, seen) else "differs"
        return replace(known, state=state, seen=seen, attachments=attachments)

    def _output_file(self, rank: int) -> Path:
        return self._folder / f"output-{rank}.txt"

    def _last_lines(self) -> str:
        outputs = [self._output_file(rank).read_bytes()[-_MAX_OUTPUT_BYTES:] for rank in range(len(self._ranks))]
        lines = [line for text in outputs for line in text.decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:]]
        return f": {' | '.join(lines)}" if lines else ""


def _wait(ranks: "Sequence[subprocess.Popen[str]]", seconds: float) -> str | None:
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


def _send(process: "subprocess.Popen[str]", line: str) -> None:
    """Send the last line of its input to a process, which may have ended already."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            process.stdin.write(line)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _skip_reason(assumption: Assumption, target: Target, *, all_cards: bool, points: bool) -> str:
    if not assumption.applies_to(target.release, target.generation):
        return f"claimed for {assumption.claim}, not for this machine"
    if target.simulated and assumption.simulator == HARDWARE and not (points and assumption.is_point):
        return f"no simulated card shows it: {assumption.reason}"
    if target.simulated and assumption.simulator == STRICT and not target.strict:
        return f"only a simulated card in strict mode shows it ({STRICT_VARIABLE}=1)"
    if assumption.ranks and not all_cards:
        return "it needs all cards of the machine: --all-cards"
    if assumption.ranks and target.cards < 2:  # noqa: PLR2004 - a job of several ranks.
        return "it needs two cards"
    return ""


def _program_environ(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the environment in which programs see defaults, and in which libraries write to the scratch folder."""
    kept = {name: value for name, value in environ.items() if not _DROPPED.fullmatch(name)}
    folders = {name: str(scratch / name.lower()) for name in _FOLDERS}
    for folder in folders.values():
        Path(folder).mkdir(exist_ok=True)
    return {**kept, **folders, "PYTHONDONTWRITEBYTECODE": "1"}


def _mode_variables(assumption: Assumption) -> dict[str, str]:
    return {} if assumption.mode is None else {"PT_HPU_LAZY_MODE": "1" if assumption.mode == "lazy" else "0"}


def _rank_variables(assumption: Assumption, target: Target) -> list[dict[str, str]]:
    if not assumption.ranks:
        return [{} if target.module is None else {"HLS_MODULE_ID": str(target.module)}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(target.cards)}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(target.cards)]


def _read_result(file: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result
