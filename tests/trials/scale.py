"""Measure rendezvous and failure detection of jobs of up to thousands of ranks, without cards and models.

A rank is its rendezvous, its watchdog, and a loop that enters a collective once a second; the classes are those of a
training. A machine is a network namespace. Each rank is a process; above a number of ranks, those of all machines but
the first and the last are threads of one process per namespace. The last rank or the last machine fails. What waits in
a collective is held there, as by HCCL.

    python tests/trials/scale.py [--ranks 8 64] [--only killed] [--delay 0.1 --loss 0.01] [--json cells.json]

`nox -s scale` calls it.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import itertools
import mmap
import os
import select
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from harness import Table, keep_output
from hpu_core.distributed import excepthook
from hpu_core.distributed import rendezvous as rendezvous_module
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import rendezvous
from hpu_core.distributed.store import RendezvousConfig
from hpu_core.distributed.watchdog import Watchdog
from hpu_testing import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._C._distributed_c10d import PrefixStore
else:
    # Public here, but not for type checkers.
    from torch.distributed import PrefixStore

_RANKS_PER_MACHINE = 8
_MAX_NAMESPACES = 128
# More processes than this do not fit beside others on a laptop.
_MAX_PROCESSES = 1024
_PORT = 29500
# Seconds between two looks of a rank at the other ranks, and that it computes between two collectives.
_PAUSE = 0.5
# Seconds that all ranks may take to join, and to end after a failure is known.
_JOIN_LIMIT, _EXIT_LIMIT = 300.0, 90.0
_FOREVER = 1e6
_PAGE = 60


@dataclass(frozen=True)
class Fault:
    """A way to fail.

    Attributes:
        name: What tables call it.
        timeout: The strategies' timeout in seconds.
        limit: Seconds within which every rank must know of it.
        machine: Whether a whole machine fails.
        launched: Whether rank 0 of each machine has started the others, and sees their exit codes.
    """

    name: str
    timeout: float = 600
    limit: float = 15
    machine: bool = False
    launched: bool = True


_FAULTS = (
    Fault("killed"),
    Fault("killed, started by an engine", launched=False),
    Fault("rank 0 killed"),
    Fault("machine killed", machine=True),
    Fault("hung", timeout=60, limit=60),
    Fault("stopped", timeout=60, limit=60),
    Fault("machine unreachable", timeout=60, limit=60, machine=True),
)


class Board:
    """Shared memory of all ranks and the harness, where collectives complete and results are.

    Attributes:
        shared: The last collective that all ranks have entered, and whether the rank that hangs does so now.
        pid: Process of each rank.
        entered: The last collective that it has entered.
        joined: When it had joined, in seconds of the monotonic clock.
        failed: When it knew of the failure.
        left: Whether it has ended.
        processor: Processor time of its watchdog in seconds.
        requests: Requests of its watchdog to the store.
        memory: Bytes of its process before it joined.
    """

    def __init__(self, ranks: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * (2 + 8 * ranks))).cast("d")
        self.shared = cells[:2]
        columns = [cells[2 + index * ranks : 2 + (index + 1) * ranks] for index in range(8)]
        self.pid, self.entered, self.joined, self.failed = columns[:4]
        self.left, self.processor, self.requests, self.memory = columns[4:]


class CountedStore(PrefixStore):
    """Store that counts the messages that its client sends, as torch's TCPStore does.

    Attributes:
        requests: Their number.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.requests = 0

    def set(self, *args: Any) -> None:
        """Send a value."""
        self.requests += 1
        super().set(*args)

    def add(self, *args: Any) -> int:
        """Send a number, and return the sum."""
        self.requests += 1
        return int(super().add(*args))

    def get(self, key: str) -> bytes:
        """Wait for a key, and return its value."""
        self.requests += 2
        return bytes(super().get(key))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Wait for keys, and return their values."""
        self.requests += 2
        return list(super().multi_get(keys))


class Child:
    """Part of `subprocess.Popen` that failure detection uses, for a forked process; for a thread, the pid is 0."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, if there is one."""
        if self.pid and self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def kill(self) -> None:
        """Kill the process."""
        if self.pid and self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Job:
    """Ranks, and their failure.

    Attributes:
        ranks: Number of ranks.
        fault: The failure.
        network: The machines; several of 8 ranks share one if there are more.
        port: Port of the store.
        processes: Whether each rank is a process.
        board: Shared memory.
    """

    ranks: int
    fault: Fault
    network: Network
    port: int
    processes: bool
    board: Board

    @property
    def victim(self) -> int:
        """The rank that fails."""
        return 0 if self.fault.name.startswith("rank 0") else self.ranks - 1

    @property
    def machines(self) -> list[range]:
        """The ranks of each machine."""
        return [
            range(first, min(first + _RANKS_PER_MACHINE, self.ranks))
            for first in range(0, self.ranks, _RANKS_PER_MACHINE)
        ]

    def start(self) -> int:
        """Start all ranks, and return the process of rank 0."""
        inner = self.machines[1:-1]
        first = fork(partial(self._run_machine, 0, self.machines[0]))
        if self.processes:
            for index, ranks in enumerate(inner, start=1):
                fork(partial(self._run_machine, index, ranks))
        else:
            # The last namespace is that of the last machine alone.
            for index in range(1, self.last):
                fork(partial(self._run_threads, index, inner[index - 1 :: self.last - 1]))
        if self.last:
            fork(partial(self._run_machine, self.last, self.machines[-1]))
        return first

    @property
    def last(self) -> int:
        """The namespace of the last machine."""
        return min(len(self.machines), _MAX_NAMESPACES) - 1

    def _run_machine(self, namespace: int, ranks: range) -> None:
        """Run the first rank of a machine, which launches the others."""
        self.network.enter(namespace)
        children = {rank: Child(fork(partial(self._run, rank, LaunchedRanks()))) for rank in ranks[1:]}
        self._run(ranks[0], LaunchedRanks(children if self.fault.launched else {}))

    def _run_threads(self, namespace: int, machines: Sequence[range]) -> None:
        """Run the ranks of several machines as threads of this process."""
        self.network.enter(namespace)
        threads = []
        for ranks in machines:
            children = {rank: Child(0) for rank in ranks[1:]} if self.fault.launched else {}
            launched = [LaunchedRanks(children), *(LaunchedRanks() for _ in ranks[1:])]
            threads += [threading.Thread(target=self._run, args=each) for each in zip(ranks, launched, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, rank: int, launched: LaunchedRanks) -> None:
        """Run one rank."""
        board, limit = self.board, timedelta(seconds=self.fault.timeout)
        board.pid[rank], board.memory[rank] = os.getpid(), private_memory(os.getpid())
        config = RendezvousConfig(self.network.address(0), self.port, rank, self.ranks, limit)
        try:
            result = rendezvous(config)
            watchdog = Watchdog(result, launched)
            watchdog.start()
            board.joined[rank] = time.monotonic()
            self._train(rank, watchdog)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            if self.processes:
                raise
        finally:
            board.left[rank] = 1

    def _train(self, rank: int, watchdog: Watchdog) -> None:
        board = self.board
        # Of two ranks, one is told by its collective, and one is held. Threads share the timer that ends a process.
        raises = bool(rank % 2) and self.processes
        for step in itertools.count(1):
            if board.shared[1] and rank == self.victim:
                time.sleep(_FOREVER)
            with watchdog.collective("backward"):
                board.entered[rank] = step
                while board.shared[0] < step:
                    if watchdog._failed.wait(_PAUSE):
                        board.failed[rank] = time.monotonic()
                        if raises:
                            raise RuntimeError("Connection closed by peer")
                        time.sleep(_FOREVER)
                    clocks = (time.pthread_getcpuclockid(thread.ident or 0) for thread in watchdog._threads)
                    board.processor[rank] = sum(map(time.clock_gettime, clocks))
                    board.requests[rank] = cast("CountedStore", watchdog._exchange._store).requests
            time.sleep(_PAUSE)


def fork(function: Callable[[], None]) -> int:
    """Call a function in a forked process, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        function()
        code = 0
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def private_memory(pid: int) -> float:
    """Return the bytes of a process that it shares with no other one."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return 0.0


def store_seconds(pid: int) -> float:
    """Return the processor time of the threads of torch's store in a process."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            if (task / "comm").read_text(encoding="ascii").startswith("pt_tcpstore"):
                seconds += int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    return seconds


@dataclass(frozen=True)
class Result:
    """What was measured of a job.

    Attributes:
        joined: Seconds until the last rank had joined.
        requests: Requests per second at the store.
        leader: Share of a core that the watchdog of rank 0 takes.
        store: Share of a core that the store takes.
        plain: Share of a core that the watchdog of a plain rank takes: the mean.
        leader_memory: Bytes that rank 0 took.
        plain_memory: Bytes that the last rank took.
        alarms: Number of ranks that reported a failure before there was one.
        known: Seconds until the first, and the last rank knew of the failure.
        ended: Seconds until the last process had ended; None if one did not.
        lines: Lines of error output.
        output: The error output.
    """

    joined: float
    requests: float
    leader: float
    store: float
    plain: float
    leader_memory: float
    plain_memory: float
    alarms: int
    known: tuple[float, float]
    ended: float | None
    lines: int
    output: str


def measure(job: Job, window: float) -> Result:
    """Run a job, have it fail after a time, and wait for the last process.

    Args:
        job: The job.
        window: Seconds of healthy training.
    """
    board = job.board
    with tempfile.TemporaryFile("w+") as output:
        alive, inherited = os.pipe()
        saved = os.dup(2)
        os.dup2(output.fileno(), 2)
        started = time.monotonic()
        pid = job.start()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(inherited)

        def wait(limit: float, is_done: Callable[[], bool]) -> bool:
            deadline = time.monotonic() + limit
            while not is_done():
                if time.monotonic() > deadline:
                    return False
                board.shared[0] = max(board.shared[0], min(board.entered))
                time.sleep(0.05)
            return True

        if not wait(_JOIN_LIMIT, lambda: 0 not in board.joined or any(board.left)):
            print(f"{job.ranks - list(board.joined).count(0)} ranks joined", file=sys.stderr)
        joined = max(board.joined) - started
        # Let the first heartbeats pass.
        wait(window / 4, lambda: False)
        before = (time.monotonic(), sum(board.requests), board.processor[0], store_seconds(pid), sum(board.processor))
        wait(window, lambda: False)
        after = (time.monotonic(), sum(board.requests), board.processor[0], store_seconds(pid), sum(board.processor))
        seconds, requests, leader, store, everyone = (end - start for end, start in zip(after, before, strict=True))
        memory = [private_memory(int(board.pid[rank])) - board.memory[rank] for rank in (0, job.ranks - 1)]
        alarms = sum(map(bool, board.failed))
        failed_at = time.monotonic()
        _fail(job)
        fails = {*(job.machines[-1] if job.fault.machine else [job.victim])}
        # Threads end with their process, some before they have looked.
        survivors = [rank for rank in range(job.ranks) if rank not in fails]
        wait(job.fault.limit + 30, lambda: all(board.failed[rank] or board.left[rank] for rank in survivors))
        known = [board.failed[rank] - failed_at for rank in survivors if board.failed[rank]]
        ended = None
        if select.select([alive], [], [], _EXIT_LIMIT)[0]:
            ended = time.monotonic() - failed_at
        os.close(alive)
        for each in {*map(int, board.pid)} - {0}:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.wait()
        output.seek(0)
        # torch's store looks up the name of each client, and a namespace has no name server.
        text = "".join(line for line in output if "hostname of the client socket" not in line)
    return Result(
        joined,
        requests / seconds,
        leader / seconds,
        store / seconds,
        (everyone - leader) / seconds / (job.ranks - 1),
        memory[0],
        memory[1],
        alarms,
        (min(known, default=0.0), max(known, default=0.0)),
        ended,
        len(text.splitlines()),
        text,
    )


def _fail(job: Job) -> None:
    """Let the failure happen."""
    match job.fault.name.split(",")[0]:
        case "killed" | "rank 0 killed":
            os.kill(int(job.board.pid[job.victim]), signal.SIGKILL)
        case "stopped":
            os.kill(int(job.board.pid[job.victim]), signal.SIGSTOP)
        case "hung":
            job.board.shared[1] = 1
        case "machine killed":
            job.network.kill(job.last)
        case "machine unreachable":
            job.network.cut(job.last)


def _judge(job: Job, result: Result) -> list[str]:
    """Return what is not as promised."""
    problems = []
    if result.joined > 60:
        problems.append("late rendezvous")
    if result.alarms:
        problems.append(f"{result.alarms} false alarms")
    if result.leader + result.store > 0.05:
        problems.append("busy rank 0")
    if result.plain > 0.001:
        problems.append("busy ranks")
    if not 0 < result.known[1] <= job.fault.limit:
        problems.append("late detection")
    if result.ended is None or result.ended - result.known[1] > 60:
        problems.append("late exit")
    if result.lines > _PAGE:
        problems.append("more than a page")
    return problems


def main() -> int:
    """Measure every number of ranks and every failure, and return 1 if one is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 1024, 4096])
    parser.add_argument("--only", choices=sorted({fault.name for fault in _FAULTS}), nargs="+", help="faults")
    parser.add_argument("--window", type=float, default=20, help="seconds of healthy training")
    parser.add_argument("--delay", type=float, default=0, help="seconds each way to rank 0's machine")
    parser.add_argument("--loss", type=float, default=0, help="share of frames that it loses")
    parser.add_argument("--processes", type=int, default=_MAX_PROCESSES, help="ranks above which most are threads")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--keep", type=Path, help="folder for the output of jobs with a problem")
    options = parser.parse_args()
    excepthook.install()
    table = Table(
        *("ranks", "as", "fault", "rendezvous s", "requests/s", "rank 0 %", "store %", "plain rank %"),
        *("rank 0 MB", "plain rank MB", "false alarms", "known s", "ended s", "lines", "problems"),
        file=options.json,
    )
    gc.collect()
    gc.freeze()
    ports = itertools.count(_PORT)
    for ranks in options.ranks:
        machines = -(-ranks // _RANKS_PER_MACHINE)
        with (
            Network(min(machines, _MAX_NAMESPACES)) as network,
            mock.patch.object(rendezvous_module, "PrefixStore", CountedStore),
        ):
            if options.delay or options.loss:
                network.disturb(0, options.delay, options.loss)
            for fault in _FAULTS:
                if (options.only and fault.name not in options.only) or (fault.machine and machines == 1):
                    continue
                network.connect()
                processes = ranks <= options.processes
                job = Job(ranks, fault, network, next(ports), processes, Board(ranks))
                result = measure(job, options.window)
                problems = _judge(job, result)
                _add(table, job, result, problems)
                if problems:
                    keep_output(options.keep, f"{ranks}-{fault.name}", result.output)
    return min(table.wrong, 1)


def _add(table: Table, job: Job, result: Result, problems: list[str]) -> None:
    """Add a row."""
    cells = (
        f"{result.joined:.1f}",
        f"{result.requests:.0f}",
        f"{100 * result.leader:.1f}",
        f"{100 * result.store:.1f}",
        f"{100 * result.plain:.3f}",
        f"{result.leader_memory / 1e6:.0f}",
        f"{result.plain_memory / 1e6:.1f}",
        result.alarms,
        f"{result.known[0]:.1f} to {result.known[1]:.1f}",
        "not" if result.ended is None else f"{result.ended:.1f}",
        result.lines,
    )
    kind = "processes" if job.processes else "threads"
    fields = {name: value for name, value in vars(result).items() if name != "output"}
    fields |= {"ranks": job.ranks, "kind": kind, "fault": job.fault.name}
    table.add(job.ranks, kind, job.fault.name, *cells, problems=problems, **fields)


if __name__ == "__main__":
    sys.exit(main())
