"""Starting processes that a test cannot leave behind, whatever becomes of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim import subprocess_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

# What a launcher, a bridge or the developer's shell may have set.
_SCRUBBED_ENV = (
    "HABANA_VISIBLE_MODULES",
    "HLS_MODULE_ID",
    "ID",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "PT_HPU_LAZY_MODE",
    "RANK",
    "WORLD_SIZE",
)
# How much of a program's output is kept in mind, in bytes.
_MAX_OUTPUT_BYTES = 1 << 22
# How long a killed process may take to be gone, in seconds.
_KILL_TIMEOUT = 10.0


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def machine_env(devices: int, cards: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process on a simulated machine of its own.

    It is this process's without what says which rank or card it has, with the folders that it imports from.

    Args:
        devices: How many cards the machine has.
        cards: Where the simulator keeps their locks; the processes of one machine name the same folder.
        **more: Further variables.
    """
    own = {name: value for name, value in os.environ.items() if name not in _SCRUBBED_ENV}
    return {
        **own,
        "HPU_SIM_DEVICES": str(devices),
        "HPU_SIM_RUNTIME_DIR": str(cards),
        # As many processes as there are ranks share the processors of the machine that runs the tests.
        "OMP_NUM_THREADS": "1",
        # Torch before 2.5 does not ask installed packages for devices.
        "PYTHONPATH": subprocess_env.with_hook(os.pathsep.join(path for path in sys.path if path)),
        **more,
    }


@dataclass(frozen=True)
class CompletedProgram:
    """What came of a program.

    Attributes:
        code: Its exit code.
        output: What it and the processes that it started wrote.
        seconds: How long it took, with all processes that it started.
        leaked_pids: Processes that it left behind, and that had to be killed.
    """

    code: int
    output: str
    seconds: float
    leaked_pids: tuple[int, ...]


class Program:
    """A program in a session of its own, of which nothing is left when the context ends.

    Args:
        arguments: What to run.
        environment: Its environment, for instance `machine_env(...)`.
        folder: Where to run it; here, when not given.
    """

    def __init__(self, arguments: Iterable[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        self._arguments = list(arguments)
        self._environment = dict(environment)
        self._folder = folder

    def __enter__(self) -> Self:
        self._output = tempfile.TemporaryFile("w+")
        self._start_time = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - what the test asks for.
            self._arguments,
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        _kill_session(self._process.pid)
        self._process.wait()
        self._output.close()

    @property
    def pid(self) -> int:
        """The first process, which names the session."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What has been written so far."""
        # Not by the file's own position, which the program shares.
        return os.pread(self._output.fileno(), _MAX_OUTPUT_BYTES, 0).decode(errors="replace")

    def wait(self, seconds: float) -> CompletedProgram:
        """Wait until the program and all processes that it started have ended.

        Args:
            seconds: For how long, from the start. What then still runs is killed, and counts as left behind.
        """
        deadline = self._start_time + seconds
        wait_for_exit([self._process.pid], deadline)
        wait_for_exit(_session(self._process.pid), deadline)
        elapsed = time.monotonic() - self._start_time
        leaked_pids = tuple(_session(self._process.pid))
        _kill_session(self._process.pid)
        return CompletedProgram(self._process.wait(), self.output, elapsed, leaked_pids)


def wait_for_exit(processes: Iterable[int], deadline: float) -> None:
    """Wait until processes have ended.

    Args:
        processes: Their numbers.
        deadline: Until when at most, by `time.monotonic`.
    """
    for process in processes:
        try:
            pidfd = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(pidfd)


def _session(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name in brackets, which may hold anything: state, parent, group, session.
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if session == str(leader) and state != "Z":
            members.append(int(folder.name))
    return members


def _kill_session(leader: int) -> None:
    members = _session(leader)
    for process in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    # The system may take a moment.
    wait_for_exit(members, time.monotonic() + _KILL_TIMEOUT)
