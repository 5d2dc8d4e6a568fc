"""Programs in sessions of their own, so that no process outlives a test."""

from __future__ import annotations

import contextlib
import os
import secrets
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

from hpu_sim.process import subprocess_env
from hpu_testing import fork_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

# Variables that a launcher, the bridge or the developer's shell may have set.
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
# The range of ports that the kernel chooses from, and the first port below it that services rarely use.
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 10_000
# Maximum size of the output returned, in bytes.
_MAX_OUTPUT_BYTES = 1 << 22
# Time that a killed process may take to exit, in seconds.
_KILL_TIMEOUT = 10.0


def free_port() -> int:
    """Return a TCP port of this machine that is not in use.

    It is one that the kernel does not give to connections and listeners without a port of their own, where there are
    such, so that no other program is likely to take it before the caller does.
    """
    lowest = int(_PORT_RANGE.read_text(encoding="ascii").split()[0])
    while True:
        port = _FIRST_PORT + secrets.randbelow(lowest - _FIRST_PORT) if lowest > 2 * _FIRST_PORT else 0
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free: int = probe.getsockname()[1]
            return free


def machine_env(devices: int, lock_folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process on a new simulated machine.

    It is the environment of this process without variables of ranks and devices, and with ``sys.path`` as PYTHONPATH.

    Args:
        devices: Number of devices of the machine.
        lock_folder: Folder that names the machine. Nothing is written there.
        **more: Additional variables.
    """
    own = {name: value for name, value in os.environ.items() if name not in _SCRUBBED_ENV}
    return {
        **own,
        "HPU_SIM_DEVICES": str(devices),
        "HPU_SIM_RUNTIME_DIR": str(lock_folder),
        # The ranks share the cores of the machine that runs the tests.
        "OMP_NUM_THREADS": "1",
        # torch < 2.5 has no torch.backends entry points.
        "PYTHONPATH": subprocess_env.with_hook(os.pathsep.join(path for path in sys.path if path)),
        **more,
    }


@dataclass(frozen=True)
class CompletedProgram:
    """Result of a program.

    Attributes:
        code: Exit code.
        output: Output of the program and its descendants, stdout and stderr combined.
        seconds: Time until the last process exited.
        leaked_pids: Processes that outlived the timeout and were killed.
    """

    code: int
    output: str
    seconds: float
    leaked_pids: tuple[int, ...]


class Program:
    """Context manager of a program in its own session. Exiting the context kills the whole session.

    Args:
        arguments: Command line.
        environment: Environment variables, for instance `machine_env(...)`.
        folder: Working directory; by default that of this process.
        preloaded: Whether the program, a script or module of this Python, may start with torch imported.

    Raises:
        OSError: On entering the context, if the program cannot start.
    """

    def __init__(
        self,
        arguments: Iterable[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        preloaded: bool = False,
    ) -> None:
        self._arguments = list(arguments)
        self._environment = dict(environment)
        self._folder = folder
        self._preloaded = preloaded

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._output = stack.enter_context(tempfile.TemporaryFile("w+"))
            self._start_time = time.monotonic()
            self._process = self._start()
            stack.callback(self._stop)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def _start(self) -> subprocess.Popen[bytes] | fork_server.ForkedProcess:
        if self._preloaded:
            server = fork_server.shared_server()
            return server.start(self._arguments[1:], self._environment, self._output, folder=self._folder)
        return subprocess.Popen(
            self._arguments,
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _stop(self) -> None:
        _kill_session(self._process.pid)
        self._process.wait()

    @property
    def pid(self) -> int:
        """Process id of the program, which is also the session id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Output so far."""
        # pread, because the program shares the file offset.
        return os.pread(self._output.fileno(), _MAX_OUTPUT_BYTES, 0).decode(errors="replace")

    def wait(self, seconds: float) -> CompletedProgram:
        """Wait until the program and all its descendants have exited.

        Args:
            seconds: Timeout, counted from the start. Processes that outlive it are killed and reported as leaked.

        Returns:
            The result of the program.
        """
        deadline = self._start_time + seconds
        wait_for_exit([self._process.pid], deadline)
        wait_for_exit(_session_pids(self._process.pid), deadline)
        elapsed = time.monotonic() - self._start_time
        leaked_pids = tuple(_session_pids(self._process.pid))
        _kill_session(self._process.pid)
        return CompletedProgram(self._process.wait(), self.output, elapsed, leaked_pids)


def wait_for_exit(pids: Iterable[int], deadline: float) -> None:
    """Wait until processes have exited.

    Args:
        pids: Process ids.
        deadline: Latest time to wait for, on the clock of `time.monotonic`.
    """
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(pidfd)


def _session_pids(leader: int) -> list[int]:
    """Return the running processes of a session."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Fields after the name in parentheses: state, parent, process group, session.
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if session == str(leader) and state != "Z":
            pids.append(int(folder.name))
    return pids


def _kill_session(leader: int) -> None:
    pids = _session_pids(leader)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for_exit(pids, time.monotonic() + _KILL_TIMEOUT)
