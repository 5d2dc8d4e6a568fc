"""Runs the programs of assumptions, each in a process of its own, one after the other."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_core import discovery
from hpu_core.discovery import find_holders
from hpu_core.info import SystemInfo
from hpu_doctor.verify import program, supervision
from hpu_doctor.verify.assumption import HARDWARE, STRICT, Assumption, holds
from hpu_doctor.verify.schema import State
from hpu_doctor.verify.supervision import Limits

if TYPE_CHECKING:
    from typing_extensions import Self

STRICT_VARIABLE: Final = "HPU_SIM_STRICT"

_MODULE: Final = "hpu_doctor.verify.program"
# Processes that load the bridge while another runs its program: loading opens no card and takes longer than most.
_AHEAD: Final = 2
_OUTPUT_LINES: Final = 4
_MAX_OUTPUT_BYTES: Final = 1 << 16
_MAX_ATTACHMENT_BYTES: Final = 1 << 24
# Settings of a job or a user, whose defaults the programs are to see, or that would write elsewhere.
_DROPPED: Final = (
    "HABANA_PROFILE",
    "HLS_MODULE_ID",
    "ID",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
)
# Errors that say nothing of an assumption: another process has the card, or the program could not write.
_ENVIRONMENT_ERRORS: Final = ("Device acquire failed", "No space left on device")
_MIN_FREE_BYTES: Final = 1 << 20
_DROPPED_PREFIXES: Final = ("PT_", "OMPI_", "SLURM_", "PMI_", "PMIX_")


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
        busy = {holder.module_id for holder in find_holders().processes}
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
    fork: bool = False,
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
        fork: Whether programs run in processes that are forked from one that has loaded the bridge. It saves time on
            the simulator; a bridge may not survive it.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    base = _program_environ(environ, scratch)
    queue = deque(
        (assumption, _skip_reason(assumption, target, all_cards=all_cards, points=points)) for assumption in assumptions
    )
    ready: deque[tuple[Assumption, str, _Processes | None]] = deque()
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(_Servers(base)) if fork else None
        stack.callback(_kill, ready)
        while queue or ready:
            while queue and sum(processes is not None for _, _, processes in ready) <= (0 if fork else _AHEAD):
                assumption, reason = queue.popleft()
                processes = None
                if not reason:
                    folder = scratch / assumption.id
                    folder.mkdir()
                    for name, text in assumption.files.items():
                        (folder / name).write_text(text, encoding="utf-8")
                    ranks = _rank_variables(assumption, target)
                    processes = _Processes(assumption, folder, base, ranks, servers)
                ready.append((assumption, reason, processes))
            assumption, reason, processes = ready.popleft()
            if processes is None:
                yield Outcome(assumption=assumption, state="not tried", reason=reason)
            elif deadline is not None and time.monotonic() > deadline:
                processes.kill()
                yield Outcome(assumption=assumption, state="not tried", reason="the time of the run was up")
            else:
                yield processes.finish()


def _kill(ready: "deque[tuple[Assumption, str, _Processes | None]]") -> None:
    for _, _, processes in ready:
        if processes is not None:
            processes.kill()


class _Processes:
    """The processes of one program: one, or one per rank.

    They are started at once, or by a server that has loaded the bridge, when they are finished.
    """

    def __init__(
        self,
        assumption: Assumption,
        folder: Path,
        base: Mapping[str, str],
        ranks: Sequence[Mapping[str, str]],
        servers: "_Servers | None",
    ) -> None:
        self._assumption = assumption
        self._folder = folder
        self._ranks = ranks
        # A server has loaded the bridge without the variables.
        self._servers = None if assumption.variables else servers
        self._started: list[subprocess.Popen[bytes]] = []
        if self._servers is None:
            environ = {**base, **_mode_variables(assumption), **assumption.variables}
            self._started = [self._start(rank, {**environ, **own}) for rank, own in enumerate(ranks)]

    def _start(self, rank: int, environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", _MODULE, self._assumption.id, str(self._folder)]
        with program.output_file(self._folder, rank).open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - this package's own module.
                command, env=environ, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=self._folder
            )

    def finish(self) -> Outcome:
        """Run the program to its end, and return the outcome."""
        start = time.monotonic()
        if self._servers is not None:
            ending = self._servers.run(self._assumption, self._folder, self._ranks)
        else:
            for process in self._started:
                _close(process, b"\n")
            ending = supervision.wait([process.pid for process in self._started], Limits(self._assumption.seconds))
            for process in self._started:
                # Already waited for.
                process.poll()
        seconds = time.monotonic() - start
        try:
            return self._outcome(ending, seconds)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End the processes without a result."""
        for process in self._started:
            _close(process)
            supervision.kill_group(process.pid)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _outcome(self, ending: str | None, seconds: float) -> Outcome:
        assumption, known = self._assumption, Outcome(assumption=self._assumption, state="differs", seconds=seconds)
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
        state: State = "holds" if holds(assumption.expected, seen) else "differs"
        return replace(known, state=state, seen=seen, attachments=_read_attachments(self._folder))

    def _last_lines(self) -> str:
        lines: list[str] = []
        for rank in range(len(self._ranks)):
            file = program.output_file(self._folder, rank)
            if file.exists():
                lines += file.read_bytes()[-_MAX_OUTPUT_BYTES:].decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:]
        return f": {' | '.join(lines)}" if lines else ""


class _Servers:
    """Processes that have loaded the bridge, one per mode, and fork a process per program."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._servers: dict[str | None, subprocess.Popen[str]] = {}

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for server in self._servers.values():
            if kind is not None:
                server.terminate()
            # It ends with its input.
            server.communicate()

    def run(self, assumption: Assumption, folder: Path, ranks: Sequence[Mapping[str, str]]) -> str | None:
        """Run a program, and return how its processes ended, None for exit code 0."""
        server = self._servers.get(assumption.mode)
        if server is None:
            server = self._servers[assumption.mode] = subprocess.Popen(  # noqa: S603 - this package's own module.
                [sys.executable, "-m", _MODULE],
                env={**self._environ, **_mode_variables(assumption)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C is this process's, which ends the other.
                start_new_session=True,
            )
        request = {"id": assumption.id, "folder": str(folder), "ranks": list(ranks)}
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("the server has no pipes")
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that forks programs ended: exit code {server.wait()}")
        ending: str | None = json.loads(answer)
        return ending


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
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }
    folders = ("HABANA_LOGS", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
    for name in folders:
        folder = scratch / name.lower()
        folder.mkdir(exist_ok=True)
        kept[name] = str(folder)
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


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


def _close(process: "subprocess.Popen[bytes]", line: bytes = b"") -> None:
    if process.stdin is not None:
        # It has ended already if loading the bridge failed.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.close()


def _read_result(file: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result


def _read_attachments(folder: Path) -> dict[str, bytes]:
    files = sorted((folder / program.ATTACHMENTS).glob("*"))
    return {file.name: file.read_bytes() for file in files if file.stat().st_size <= _MAX_ATTACHMENT_BYTES}
