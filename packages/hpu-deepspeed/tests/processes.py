"""Starting processes that a test cannot leave behind, whatever becomes of it."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

T = TypeVar("T")

_TESTS = Path(__file__).parent

# What a launcher, a bridge or the developer's shell may have set.
_PLACE = (
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


def free_port() -> int:
    """Return a TCP port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def environment(devices: int, cards: Path, **more: str) -> dict[str, str]:
    """Return the variables of a process on a simulated machine of its own.

    Args:
        devices: How many cards it has.
        cards: Where the simulator keeps their locks.
        **more: Further variables.
    """
    own = {name: value for name, value in os.environ.items() if name not in _PLACE}
    return {
        **own,
        "HPU_SIM_DEVICES": str(devices),
        "HPU_SIM_RUNTIME_DIR": str(cards),
        # As many processes as there are ranks share the processors of the machine that runs the tests.
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


@dataclass(frozen=True)
class Done:
    """What came of a program.

    Attributes:
        code: Its exit code.
        output: What it and the processes that it started wrote.
        seconds: How long it took, with all processes that it started.
        left: Processes that it left behind, and that had to be killed.
    """

    code: int
    output: str
    seconds: float
    left: tuple[int, ...]


class Program:
    """A program in a session of its own, which is killed when the context ends.

    Args:
        arguments: What to run.
        variables: Its environment.
        folder: Where to run it.
    """

    def __init__(self, arguments: Iterable[str], variables: Mapping[str, str], folder: Path | None = None) -> None:
        self._arguments = list(arguments)
        self._variables = dict(variables)
        self._folder = folder

    def __enter__(self) -> Self:
        self._output = tempfile.TemporaryFile("w+")
        self._start = time.monotonic()
        self._process = subprocess.Popen(
            self._arguments,
            env=self._variables,
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
        text = os.pread(self._output.fileno(), 1 << 22, 0)
        return text.decode(errors="replace")

    def wait(self, seconds: float) -> Done:
        """Wait until the program and all processes that it started have ended.

        Args:
            seconds: For how long. What then still runs counts as left behind.
        """
        deadline = self._start + seconds
        _await_end([self._process.pid], deadline)
        _await_end(_session(self._process.pid), deadline)
        took = time.monotonic() - self._start
        left = tuple(_session(self._process.pid))
        _kill_session(self._process.pid)
        return Done(self._process.wait(), self.output, took, left)


class Ranks:
    """Processes that are the ranks of one training and call functions together.

    Args:
        count: How many.
        lazy: Whether the simulated cards are in lazy mode.
        folder: For sockets, locks and output.
    """

    def __init__(self, count: int, folder: Path, *, lazy: bool) -> None:
        address = str(folder / "socket")
        port = str(free_port())
        mode = {"PT_HPU_LAZY_MODE": "1" if lazy else "0"}
        self._logs = [(folder / f"rank-{rank}.log").open("w+") for rank in range(count)]
        self._processes = []
        with Listener(address, family="AF_UNIX", backlog=count) as listener:
            for rank, log in enumerate(self._logs):
                place = {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
                variables = environment(count, folder / "cards", **mode, **place)
                command = [sys.executable, str(_TESTS / "rank_process.py"), address]
                self._processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))
            connections = [listener.accept() for _ in self._processes]
        # Each says first which rank it is.
        ranks = {connection.recv(): connection for connection in connections}
        self._connections = [ranks[rank] for rank in range(count)]

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = 60) -> list[T]:
        """Have all ranks call a function of a test module.

        Args:
            function: Of module level.
            *arguments: Its arguments.
            seconds: For how long to wait for all answers.

        Returns:
            What it returned on each rank.

        Raises:
            AssertionError: It failed, or did not return in time; the text says on which rank.
        """
        module = f"tests.{Path(function.__code__.co_filename).stem}"
        for connection in self._connections:
            connection.send((module, function.__name__, arguments))
        deadline = time.monotonic() + seconds
        answers: dict[int, tuple[bool, Any]] = {}
        while len(answers) < len(self._connections):
            awaited = [c for rank, c in enumerate(self._connections) if rank not in answers]
            ready = wait(awaited, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for rank, connection in enumerate(self._connections):
                if connection in ready:
                    answers[rank] = self._receive(connection)
            if not all(good for good, _ in answers.values()):
                # The others wait for this one and may never answer.
                break
        failures = [f"rank {rank}: {answer}" for rank, (good, answer) in answers.items() if not good]
        failures += [f"rank {rank} did not answer" for rank in range(len(self._connections)) if rank not in answers]
        if failures:
            raise AssertionError("\n".join([*failures, *self._outputs()]))
        return [answers[rank][1] for rank in range(len(answers))]

    def end(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.close()
        _await_end([process.pid for process in self._processes], time.monotonic() + 30)
        for process in self._processes:
            process.kill()
            process.wait()
        for log in self._logs:
            log.close()

    @staticmethod
    def _receive(connection: Connection) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = connection.recv()
        except (EOFError, ConnectionError):
            return False, "has ended"
        return answer

    def _outputs(self) -> list[str]:
        return [f"rank {rank} wrote:\n{Path(log.name).read_text()}" for rank, log in enumerate(self._logs)]


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


def _await_end(processes: Iterable[int], deadline: float) -> None:
    """Wait until processes have ended, or until a time."""
    for process in processes:
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        os.close(descriptor)


def _kill_session(leader: int) -> None:
    for process in _session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
