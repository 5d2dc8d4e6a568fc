"""Functions that the ranks of a training call together."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from hpu_sim.testing.processes import free_port, machine_env, wait_for_exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

T = TypeVar("T")

# How long ranks may take to import torch, for which the simulator may have to be compiled first, in seconds.
_START_TIMEOUT = 300.0
# How long a rank may take to end when it is told to, in seconds.
_EXIT_TIMEOUT = 30.0


@dataclass(frozen=True)
class FunctionRef:
    """A function of module level, by the names by which another process imports it.

    Attributes:
        root: The folder to import from: the first above the module that is no package.
        module: The module's dotted name from there.
        name: The function's.
    """

    root: str
    module: str
    name: str

    @classmethod
    def from_callable(cls, function: Callable[..., Any]) -> Self:
        """Find the names of a function.

        Its module's own name will not do: pytest imports test modules by names that nobody else can import them by.

        Raises:
            ValueError: It is not of module level.
        """
        name: str = function.__qualname__
        if not name.isidentifier():
            raise ValueError(f"a rank can call functions of module level only, got {name!r}: define it outside")
        file = Path(function.__code__.co_filename).resolve()
        parts = [file.stem]
        folders = itertools.takewhile(lambda folder: (folder / "__init__.py").exists(), file.parents)
        parts += [folder.name for folder in folders]
        return cls(str(file.parents[len(parts) - 1]), ".".join(reversed(parts)), name)


class RankPool:
    """Processes that are the ranks of one training on a simulated machine of their own: a context.

    Each has the variables of a rank, as if a person had started every process by hand; nobody has made the process
    group yet.

    Args:
        count: How many, each with a card.
        folder: For the cards' locks and what the ranks write.
        lazy: Whether the cards are in lazy mode; None leaves that to the simulated release.
        prepare: A function of module level that each rank calls first.

    Raises:
        AssertionError: On entering, a rank could not start; the text says why.
    """

    def __init__(
        self, count: int, folder: Path, *, lazy: bool | None = None, prepare: Callable[[], None] | None = None
    ) -> None:
        self._count = count
        self._folder = folder
        self._mode = {} if lazy is None else {"PT_HPU_LAZY_MODE": str(int(lazy))}
        self._prepare = prepare
        # After a failure those that are left wait for one that will not come.
        self._exit_timeout = _EXIT_TIMEOUT

    def __enter__(self) -> Self:
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "NODE_RANK": "0",
            "WORLD_SIZE": str(self._count),
            **self._mode,
        }
        with contextlib.ExitStack() as stack:
            files = [self._folder / f"rank-{rank}.log" for rank in range(self._count)]
            self._log_files = [stack.enter_context(file.open("w+")) for file in files]
            self._processes: list[subprocess.Popen[bytes]] = []
            stack.callback(self._stop_processes)
            self._connections: list[Connection] = []
            for rank, log in enumerate(self._log_files):
                place = {"LOCAL_RANK": str(rank), "RANK": str(rank), **shared}
                environment = machine_env(self._count, self._folder / "cards", **place)
                connection, process = _start_rank(environment, log)
                self._connections.append(stack.enter_context(connection))
                self._processes.append(process)
            self.call(self._prepare or _noop, seconds=_START_TIMEOUT)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = 60) -> list[T]:
        """Have all ranks call a function, each in its process.

        Args:
            function: Of module level; its module is imported by the ranks.
            *arguments: Its arguments, which are pickled.
            seconds: For how long to wait for all answers.

        Returns:
            What it returned on each rank, by rank.

        Raises:
            AssertionError: It failed, or did not return in time; the text says on which rank, and what the ranks have
                written. They cannot be used any more.
            ValueError: The function is not of module level.
        """
        ref = FunctionRef.from_callable(function)
        for connection in self._connections:
            # To one that has ended nothing can be sent; that it has is its answer.
            with contextlib.suppress(ConnectionError):
                connection.send((ref, arguments))
        results = self._collect_results(time.monotonic() + seconds)
        failures = [f"rank {rank}: {result}" for rank, (ok, result) in results.items() if not ok]
        failures += [f"rank {rank} has not answered" for rank in range(self._count) if rank not in results]
        if failures:
            self._exit_timeout = 0.0
            raise AssertionError("\n".join([*failures, *self._read_logs()]))
        return [results[rank][1] for rank in range(self._count)]

    def _collect_results(self, deadline: float) -> dict[int, tuple[bool, Any]]:
        results: dict[int, tuple[bool, Any]] = {}
        # When one has failed, the others wait for it and may never answer.
        while len(results) < self._count and all(ok for ok, _ in results.values()):
            pending = [c for rank, c in enumerate(self._connections) if rank not in results]
            ready = wait(pending, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for rank, connection in enumerate(self._connections):
                if connection in ready:
                    results[rank] = _recv(connection)
        return results

    def _stop_processes(self) -> None:
        # Their connections are closed, which tells them to end.
        wait_for_exit([process.pid for process in self._processes], time.monotonic() + self._exit_timeout)
        for process in self._processes:
            process.kill()
            process.wait()

    def _read_logs(self) -> list[str]:
        return [f"rank {rank} wrote:\n{Path(log.name).read_text()}" for rank, log in enumerate(self._log_files)]


class SharedRankPool:
    """Ranks for all tests of a session, started when a test first asks for as many: a context.

    Args:
        folder: Returns a folder of its own for each group of ranks, for instance
            `lambda: tmp_path_factory.mktemp("ranks")`.
        prepare: As for RankPool.
    """

    def __init__(self, folder: Callable[[], Path], *, prepare: Callable[[], None] | None = None) -> None:
        self._folder = folder
        self._prepare = prepare
        self._pools: dict[tuple[int, bool], RankPool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._pools:
            self._pools.popitem()[1].__exit__()

    def call(
        self, function: Callable[..., T], *arguments: Any, count: int = 2, lazy: bool = False, seconds: float = 60
    ) -> list[T]:
        """Have ranks call a function, as `RankPool.call`; new ones are started after a failure.

        Args:
            function: Of module level.
            *arguments: Its arguments.
            count: How many ranks.
            lazy: Whether their cards are in lazy mode.
            seconds: For how long to wait for all answers.

        Returns:
            What it returned on each rank, by rank.

        Raises:
            AssertionError: It failed, or did not return in time.
            ValueError: The function is not of module level.
        """
        if (count, lazy) not in self._pools:
            started = RankPool(count, self._folder(), lazy=lazy, prepare=self._prepare)
            self._pools[count, lazy] = started.__enter__()
        try:
            return self._pools[count, lazy].call(function, *arguments, seconds=seconds)
        except AssertionError:
            self._pools.pop((count, lazy)).__exit__()
            raise


def _start_rank(environment: dict[str, str], log: IO[str]) -> tuple[Connection, subprocess.Popen[bytes]]:
    """Start one rank, which ends when the connection is closed."""
    connection, its = Pipe()
    with its:
        command = [sys.executable, "-m", "hpu_sim.testing.rank_worker", str(its.fileno())]
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with a number.
            command, env=environment, stdout=log, stderr=log, pass_fds=[its.fileno()]
        )
    return connection, process


def _noop() -> None:
    """Do nothing, which shows that a rank has started."""


def _recv(connection: Connection) -> tuple[bool, Any]:
    try:
        result: tuple[bool, Any] = connection.recv()
    except (EOFError, ConnectionError):
        return False, "has ended"
    return result
