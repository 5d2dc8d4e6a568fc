"""Pool of ranks that call test functions together."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from hpu_testing.fork_server import ForkedProcess, shared_server
from hpu_testing.limits import allow_for_program
from hpu_testing.processes import free_port, machine_env, wait_for_exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

T = TypeVar("T")

# Time that ranks may take to start, in seconds. They import torch and may have to compile the simulator.
_START_TIMEOUT = 300.0
# Time that a rank may take to exit, in seconds.
_EXIT_TIMEOUT = 30.0


@dataclass(frozen=True)
class FunctionRef:
    """Reference to a module-level function that another process can import.

    Attributes:
        root: Folder to import from: the parent of the top-level package or module.
        module: Dotted name of the module, relative to ``root``.
        name: Name of the function.
    """

    root: str
    module: str
    name: str

    @classmethod
    def from_callable(cls, function: Callable[..., Any]) -> Self:
        """Return the reference to a function.

        ``__module__`` is not usable: pytest's importlib mode gives test modules names that cannot be imported.

        Args:
            function: Function at module level.

        Raises:
            ValueError: If the function is not at module level.
        """
        name: str = function.__qualname__
        if not name.isidentifier():
            raise ValueError(f"`function` must be defined at module level, got {name!r}")
        file = Path(function.__code__.co_filename).resolve()
        parts = [file.stem]
        folders = itertools.takewhile(lambda folder: (folder / "__init__.py").exists(), file.parents)
        parts += [folder.name for folder in folders]
        return cls(str(file.parents[len(parts) - 1]), ".".join(reversed(parts)), name)


class RankPool:
    """Context manager of one process per rank, on a simulated machine of their own.

    The processes have the environment variables of a launcher such as torchrun. The process group is not initialized.

    Args:
        count: Number of ranks, each with a device.
        folder: Folder for logs, which also names the machine.
        lazy: Whether lazy mode is on; None for the default of the simulated release.
        prepare: Function at module level that each rank calls first.

    Raises:
        AssertionError: On entering the context, if a rank cannot start.
    """

    def __init__(
        self, count: int, folder: Path, *, lazy: bool | None = None, prepare: Callable[[], None] | None = None
    ) -> None:
        self._count = count
        self._folder = folder
        self._mode = {} if lazy is None else {"PT_HPU_LAZY_MODE": str(int(lazy))}
        self._prepare = prepare
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
            self._processes: list[ForkedProcess] = []
            stack.callback(self._stop_processes)
            self._connections: list[Connection] = []
            for rank, log in enumerate(self._log_files):
                rank_env = {"LOCAL_RANK": str(rank), "RANK": str(rank), **shared}
                environment = machine_env(self._count, self._folder / "cards", **rank_env)
                connection, process = _start_rank(environment, log)
                self._connections.append(stack.enter_context(connection))
                self._processes.append(process)
            self.call(self._prepare or _noop, seconds=_START_TIMEOUT)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = 60) -> list[T]:
        """Call a function on all ranks.

        Args:
            function: Function at module level. Every rank imports its module.
            *arguments: Arguments of the function, which are pickled.
            seconds: Timeout of the call.

        Returns:
            The results, by rank.

        Raises:
            AssertionError: If the function raises or times out on a rank. The message has the traceback and the logs of
                all ranks. The pool is not usable afterwards.
            ValueError: If the function is not at module level.
        """
        allow_for_program()
        ref = FunctionRef.from_callable(function)
        for connection in self._connections:
            # Sending to a dead rank fails; its EOF is handled below.
            with contextlib.suppress(ConnectionError):
                connection.send((ref, arguments))
        results = self._collect_results(time.monotonic() + seconds)
        failures = [f"rank {rank}: {result}" for rank, (ok, result) in results.items() if not ok]
        failures += [f"rank {rank} timed out" for rank in range(self._count) if rank not in results]
        if failures:
            # The other ranks may be blocked in a collective with the failed one.
            self._exit_timeout = 0.0
            raise AssertionError("\n".join([*failures, *self._read_logs()]))
        return [results[rank][1] for rank in range(self._count)]

    def _collect_results(self, deadline: float) -> dict[int, tuple[bool, Any]]:
        results: dict[int, tuple[bool, Any]] = {}
        # After a failure, the other ranks may wait for the failed one for ever.
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
        # Workers exit when their connection is closed, which it is by now.
        wait_for_exit([process.pid for process in self._processes], time.monotonic() + self._exit_timeout)
        for process in self._processes:
            process.kill()
            process.wait()

    def _read_logs(self) -> list[str]:
        return [f"log of rank {rank}:\n{Path(log.name).read_text()}" for rank, log in enumerate(self._log_files)]


class SharedRankPool:
    """Context manager of rank pools that all tests of a session share. Pools start on first use.

    Args:
        folder: Function that returns a new folder per pool, for instance `lambda: tmp_path_factory.mktemp("ranks")`.
        prepare: Function at module level that each rank calls first.
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
        """Call a function on all ranks of a pool, as `RankPool.call`. A failure discards the pool.

        Args:
            function: Function at module level.
            *arguments: Arguments of the function, which are pickled.
            count: Number of ranks.
            lazy: Whether lazy mode is on.
            seconds: Timeout of the call.

        Returns:
            The results, by rank.

        Raises:
            AssertionError: If the function raises or times out on a rank.
            ValueError: If the function is not at module level.
        """
        if (count, lazy) not in self._pools:
            started = RankPool(count, self._folder(), lazy=lazy, prepare=self._prepare)
            self._pools[count, lazy] = started.__enter__()
        try:
            return self._pools[count, lazy].call(function, *arguments, seconds=seconds)
        except AssertionError:
            self._pools.pop((count, lazy)).__exit__()
            raise


def _start_rank(environment: dict[str, str], log: IO[str]) -> tuple[Connection, ForkedProcess]:
    """Start a worker, which exits when the connection is closed."""
    server = shared_server()
    connection, its = Pipe()
    with its:
        return connection, server.start(["-m", "hpu_testing.rank_worker"], environment, log, stdin=its.fileno())


def _noop() -> None:
    """Do nothing. The call returns once the rank has started."""


def _recv(connection: Connection) -> tuple[bool, Any]:
    try:
        result: tuple[bool, Any] = connection.recv()
    except (EOFError, ConnectionError):
        return False, "exited"
    return result
