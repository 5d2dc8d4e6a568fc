"""Measure rendezvous and failure detection of jobs of up to thousands of ranks, without cards and models.

A rank is its rendezvous, its guard, and a loop that enters a step once a second; the classes are those of a
training. A machine is a network namespace. Each rank is a process; above a number of ranks, those of all machines but
the first and the last are threads, each with open files and a network of its own. All start to join at once. The last
rank or the last machine fails. What waits in a collective is blocked there, as by HCCL.

    python tests/trials/scale.py [--ranks 8 64] [--only killed] [--delay 0.1 --loss 0.01] [--json after.json]

`nox -s scale` calls it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import itertools
import math
import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import psutil

from harness import Table, kill, parser, wait
from hpu_core.distributed import errors
from hpu_core.distributed import guard as guard_module
from hpu_core.distributed import rendezvous as rendezvous_module
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.guard import Guard, start_guard
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.step_clock import StepClock
from hpu_core.distributed.store import RendezvousConfig
from hpu_core.distributed.watchdog import Watchdog
from hpu_testing import Network

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from torch._C._distributed_c10d import PrefixStore
else:
    # Public here, but not for type checkers.
    from torch.distributed import PrefixStore

_RANKS_PER_MACHINE = 8
_MAX_NAMESPACES = 128
# Of more processes than this, some get no core on a laptop when all end. Threads of a process share Python's lock.
_MAX_PROCESSES, _THREADS = 64, 128
_PORT = 29500
# Seconds between two looks of a rank at the other ranks, and that it computes between two collectives.
_LOOK, _PAUSE = 0.25, 0.5
# Seconds that all ranks may take to join, and to end after a failure is known.
_JOIN_LIMIT, _EXIT_LIMIT = 300.0, 90.0
_FOREVER = 1e6
_PAGE = 60
# Of linux/sched.h.
_CLONE_FILES, _CLONE_NEWUTS = 0x400, 0x4000000


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
    Fault("machine killed", timeout=60, limit=60, machine=True),
    Fault("hung", timeout=60, limit=60),
    Fault("stopped", timeout=60, limit=60),
    Fault("machine unreachable", timeout=60, limit=60, machine=True),
)


class Board:
    """Shared memory of all ranks and the harness, where collectives complete and results are.

    Attributes:
        shared: Whether the ranks may join, the last collective that all have entered, and whether no more complete.
        pid: Process of each rank.
        entered: The last collective that it has entered.
        joining: Seconds of processor time that it took to join, on the average of its process.
        joined: When it had joined, in seconds of the monotonic clock.
        failed: When it knew of the failure.
        left: Whether it has ended.
        processor: Processor time of its guard in seconds.
        requests: Requests of its guard to the store.
    """

    def __init__(self, ranks: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * (3 + 8 * ranks))).cast("d")
        self.shared = cells[:3]
        columns = [cells[3 + index * ranks : 3 + (index + 1) * ranks] for index in range(8)]
        self.pid, self.entered, self.joining, self.joined = columns[:4]
        self.failed, self.left, self.processor, self.requests = columns[4:]


class CountedStore(PrefixStore):
    """Store that counts the messages that its client sends, as torch's TCPStore does.

    Attributes:
        requests: Their number.
    """

    requests = 0


def _count(name: str, messages: int) -> None:
    method = getattr(PrefixStore, name)

    def call(self: CountedStore, *args: Any) -> Any:
        self.requests += messages
        return method(self, *args)

    setattr(CountedStore, name, call)


for _name, _messages in {"set": 1, "add": 1, "get": 2, "multi_get": 2}.items():
    _count(_name, _messages)


class MeasuredGuard(Guard):
    """Guard that notes on the board what it uses.

    Attributes:
        board: The board.
    """

    board: Board

    def exchange(self, *, is_last: bool = False) -> None:
        """Exchange heartbeats."""
        start, rank, used = time.thread_time(), self._rank, self.board.processor
        super().exchange(is_last=is_last)
        # Guards of ranks that are threads share one.
        is_process = os.getpid() != self._pid
        used[rank] = time.process_time() if is_process else used[rank] + time.thread_time() - start
        if self._store is not None:
            self.board.requests[rank] = cast("CountedStore", self._store).requests


# Guards of the ranks that are threads of this process.
_guards: list[Guard] = []


def share_thread(job: RendezvousResult, clock: StepClock, *, detects: bool) -> int:
    """Start a guard on the thread of all guards of this process, which has the network of the first one's machine."""
    _guards.append(guard_module.Guard(job, clock, os.getpid(), detects=detects))
    if len(_guards) == 1:
        threading.Thread(target=_run_guards, daemon=True).start()
    return 0


def _run_guards() -> None:
    interval = _guards[0]._timeouts.heartbeat_interval
    while True:
        start = time.monotonic()
        for guard in [*_guards]:
            guard.exchange()
            guard._watch(time.monotonic())
        time.sleep(max(0.0, start + interval - time.monotonic()))


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

    @property
    def last(self) -> int:
        """The namespace of the last machine."""
        return min(len(self.machines), _MAX_NAMESPACES) - 1

    def start(self) -> None:
        """Start all ranks, which wait until they may join."""
        machines = self.machines
        for ranks in machines if self.processes else (machines[0], machines[-1]):
            fork(partial(self._run_machine, ranks))
        inner = [] if self.processes else [rank for ranks in machines[1:-1] for rank in ranks]
        for start in range(0, len(inner), _THREADS):
            fork(partial(self._run_threads, inner[start : start + _THREADS]))

    def _run_machine(self, ranks: range) -> None:
        """Run the first rank of a machine, which launches the others."""
        self._enter(ranks[0], _CLONE_NEWUTS)
        children: dict[int, Any] = {
            rank: Child(fork(partial(self._run, {rank: LaunchedRanks()}))) for rank in ranks[1:]
        }
        self._run({ranks[0]: LaunchedRanks(children if self.fault.launched else {})})

    def _run_threads(self, ranks: Sequence[int]) -> None:
        """Run the ranks of several machines as threads of this process."""
        # Those that wait for Python's lock look after each interval.
        sys.setswitchinterval(0.1)
        launched = {rank: LaunchedRanks() for rank in ranks}
        if self.fault.launched:
            for first in ranks[::_RANKS_PER_MACHINE]:
                others = range(first + 1, first + _RANKS_PER_MACHINE)
                launched[first] = LaunchedRanks(dict[int, Any]({rank: Child(0) for rank in others}))
        self._run(launched)

    def _enter(self, rank: int, flags: int) -> None:
        """Move the calling thread to the machine of a rank.

        Args:
            rank: The rank.
            flags: What the thread shares with no other one from now on.
        """
        machine = rank // _RANKS_PER_MACHINE
        ctypes.CDLL(None).unshare(flags)
        socket.sethostname(f"node-{machine}")
        # The last namespace is that of the last machine alone.
        is_end = machine in {0, len(self.machines) - 1}
        self.network.enter(min(machine, self.last) if is_end else 1 + (machine - 1) % (self.last - 1))

    def _run(self, launched: Mapping[int, LaunchedRanks]) -> None:
        """Run the ranks of a process; several are threads."""
        board = self.board

        def join(rank: int) -> Watchdog:
            if len(launched) > 1:
                self._enter(rank, _CLONE_FILES | _CLONE_NEWUTS)
            limit = timedelta(seconds=self.fault.timeout)
            config = RendezvousConfig(self.network.address(0), self.port, rank, self.ranks, limit)
            guard = share_thread if len(launched) > 1 else start_guard
            watchdog = Watchdog(rendezvous(config), launched[rank], StepClock(), guard=guard)
            watchdog.open()
            board.joined[rank] = time.monotonic()
            return watchdog

        try:
            for rank in launched:
                board.pid[rank] = os.getpid()
            while not board.shared[0]:
                time.sleep(_LOOK)
            before = time.process_time()
            with ThreadPoolExecutor(len(launched)) as pool:
                watchdogs = dict(zip(launched, pool.map(join, launched), strict=True))
            for rank in launched:
                board.joining[rank] = (time.process_time() - before) / len(launched)
            self._train(watchdogs)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            raise
        finally:
            for rank in launched:
                board.left[rank] = 1

    def _train(self, watchdogs: Mapping[int, Watchdog]) -> None:
        board, first, is_alone = self.board, min(watchdogs), len(watchdogs) == 1
        for step in itertools.count(1):
            if board.shared[2] and self.fault.name == "hung" and self.victim in watchdogs:
                time.sleep(_FOREVER)
            self._note(watchdogs)
            with ExitStack() as stack:
                for rank, watchdog in watchdogs.items():
                    # Ranks in threads do not end one by one.
                    with nullcontext() if is_alone else suppress(RankFailedError):
                        stack.enter_context(watchdog.step("backward"))
                    board.entered[rank] = step
                while board.shared[1] < step:
                    time.sleep(_LOOK if is_alone else 4 * _LOOK)
                    if not self._note(watchdogs):
                        continue
                    if not is_alone:
                        os._exit(1)
                    # Of two ranks, one fails in its collective, and one is blocked.
                    if first % 2:
                        raise RuntimeError("Connection closed by peer")
                    time.sleep(_FOREVER)
            time.sleep(_PAUSE)

    def _note(self, watchdogs: Mapping[int, Watchdog]) -> bool:
        """Note what ranks know on the board, and return whether all know of the failure."""
        board = self.board
        for rank, watchdog in watchdogs.items():
            if watchdog.failure is not None and not board.failed[rank]:
                board.failed[rank] = time.monotonic()
        is_known = [bool(board.failed[rank]) for rank in watchdogs]
        if any(is_known) and not all(is_known):
            time.sleep(_LOOK)
        return all(is_known)


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


def store_seconds(pid: int) -> float:
    """Return the processor time of the threads of torch's store in a process."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            if (task / "comm").read_text(encoding="ascii").startswith("pt_tcpstore"):
                seconds += int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    return seconds


def judge(row: dict[str, Any], limit: float) -> list[str]:
    """Return what is not as promised of a job, whose ranks must all know of the failure within some seconds."""
    checks = {
        "late rendezvous": row["joined"] > 60,
        "false alarms": row["alarms"],
        "busy rank 0": row["leader"] + row["store"] > 0.05,
        "busy ranks": row["plain"] > 0.001,
        "late detection": not 0 < row["known"][1] <= limit,
        "late exit": row["ended"] - row["known"][1] > 60,
        "more than a page": row["lines"] > _PAGE,
    }
    return [name for name, is_so in checks.items() if is_so]


def measure(job: Job, window: float) -> tuple[dict[str, Any], str]:
    """Run a job, have it fail after a time, and wait for the last process.

    Args:
        job: The job.
        window: Seconds of healthy training.

    Returns:
        The error output, after what was measured:

        - joined: Seconds until the last rank had joined, from when all ranks may join.
        - joining: Processor time in seconds that this took the process of rank 0, of that the store, and a plain rank.
        - requests: Requests per second at the store.
        - leader: Share of a core that the watchdog of rank 0 takes.
        - store: Share of a core that the store takes.
        - plain: Share of a core that the watchdog of a plain rank takes: the mean.
        - memory: MB that rank 0, and the last rank took.
        - alarms: Number of ranks that reported a failure before there was one.
        - known: Seconds until the first, and the last rank knew of the failure.
        - ended: Seconds until the last process had ended; infinite if one did not.
        - lines: Lines of error output.
    """
    board = job.board

    def process(rank: int) -> psutil.Process:
        return psutil.Process(int(board.pid[rank]))

    def train(limit: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Complete collectives until something is so, or for some seconds; return whether it is."""

        def is_over() -> bool:
            if not board.shared[2]:
                board.shared[1] = min(board.entered)
            return is_done()

        return wait(is_over, limit)

    def usage() -> tuple[float, ...]:
        store = store_seconds(process(0).pid)
        return time.monotonic(), sum(board.requests), board.processor[0], store, sum(board.processor)

    def memory() -> list[float]:
        """Return the MB of the first and the last rank that they share with no other process."""
        return [process(rank).memory_full_info().uss / 1e6 for rank in (0, job.ranks - 1)]

    with tempfile.TemporaryFile("w+") as output:
        alive, inherited = os.pipe()
        saved = os.dup(2)
        os.dup2(output.fileno(), 2)
        job.start()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(inherited)
        train(_JOIN_LIMIT, lambda: 0 not in board.pid)
        empty, idle, started = memory(), process(0).cpu_times(), time.monotonic()
        board.shared[0] = 1
        train(_JOIN_LIMIT, lambda: 0 not in board.joined or any(board.left))
        if 0 in board.joined:
            print(f"{job.ranks - list(board.joined).count(0)} ranks joined", file=sys.stderr)
        joined = max(board.joined) - started
        busy = process(0).cpu_times()
        joining = busy.user + busy.system - idle.user - idle.system, store_seconds(process(0).pid)
        # Let the first heartbeats pass.
        train(window / 4)
        before = usage()
        train(window)
        seconds, requests, leader, store, everyone = (end - start for end, start in zip(usage(), before, strict=True))
        full, alarms, failed_at = memory(), sum(map(bool, board.failed)), time.monotonic()
        _fail(job)
        fails = {*(job.machines[-1] if job.fault.machine else [job.victim])}
        survivors = [rank for rank in range(job.ranks) if rank not in fails]
        has_ended = train(job.fault.limit + _EXIT_LIMIT, lambda: bool(select.select([alive], [], [], 0)[0]))
        ended = time.monotonic() - failed_at if has_ended else math.inf
        known = [board.failed[rank] - failed_at for rank in survivors if board.failed[rank]]
        os.close(alive)
        kill(*map(int, {*board.pid} - {0}))
        with suppress(ChildProcessError):
            # Another child may disturb the network.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        output.seek(0)
        # torch's store looks up the name of each client, and a namespace has no name server.
        lines = [line for line in output if "hostname of the client socket" not in line]
    row = {
        "joined": joined,
        "joining": (*joining, sum(board.joining[1:]) / (job.ranks - 1)),
        "requests": requests / seconds,
        "leader": leader / seconds,
        "store": store / seconds,
        "plain": (everyone - leader) / seconds / (job.ranks - 1),
        "memory": (full[0] - empty[0], full[1] - empty[1]),
        "alarms": alarms,
        "known": (min(known, default=0.0), max(known, default=0.0)),
        "ended": ended,
        "lines": len(lines),
    }
    return row, "".join(lines)


def _fail(job: Job) -> None:
    """Let the failure happen."""
    match job.fault.name.split(",")[0]:
        case "killed" | "rank 0 killed":
            os.kill(int(job.board.pid[job.victim]), signal.SIGKILL)
        case "stopped":
            os.kill(int(job.board.pid[job.victim]), signal.SIGSTOP)
        case "hung":
            job.board.shared[2] = 1
        case "machine killed":
            job.network.kill(job.last)
        case "machine unreachable":
            job.board.shared[2] = 1
            job.network.cut(job.last)


_COLUMNS = {
    "ranks": "{ranks}",
    "as": "{kind}",
    "fault": "{fault}",
    "rendezvous s": "{joined:.1f}",
    "rank 0 (store), plain rank: s": "{joining[0]:.1f} ({joining[1]:.1f}), {joining[2]:.3f}",
    "requests/s": "{requests:.0f}",
    "rank 0": "{leader:.1%}",
    "store": "{store:.1%}",
    "plain rank": "{plain:.3%}",
    "rank 0, plain rank: MB": "{memory[0]:.0f}, {memory[1]:.1f}",
    "false alarms": "{alarms}",
    "known s": "{known[0]:.1f} to {known[1]:.1f}",
    "ended s": "{ended:.1f}",
    "lines": "{lines}",
}


def run(options: argparse.Namespace) -> int:
    """Measure every number of ranks and every failure, and return 1 if something is not as promised."""
    table = Table(*_COLUMNS, options=options)
    errors.install_hook()
    gc.collect()
    gc.freeze()
    ports = itertools.count(_PORT)
    for ranks in options.ranks:
        machines = -(-ranks // _RANKS_PER_MACHINE)
        with (
            Network(min(machines, _MAX_NAMESPACES)) as network,
            mock.patch.object(rendezvous_module, "PrefixStore", CountedStore),
            mock.patch.object(guard_module, "Guard", MeasuredGuard),
        ):
            if options.delay or options.loss:
                network.disturb(0, options.delay, options.loss)
            for fault in _FAULTS:
                if (options.only and fault.name not in options.only) or (fault.machine and machines == 1):
                    continue
                network.connect()
                job = Job(ranks, fault, network, next(ports), ranks <= options.processes, Board(ranks))
                MeasuredGuard.board = job.board
                measured, output = measure(job, options.window)
                kind = "processes" if job.processes else "threads"
                row = {"ranks": ranks, "kind": kind, "fault": fault.name, **measured}
                table.add(
                    *(cell.format(**row) for cell in _COLUMNS.values()),
                    problems=judge(row, fault.limit),
                    output=output,
                    **row,
                )
    return min(table.wrong, 1)


def main() -> int:
    """Measure; return 1 if something is not as promised."""
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 1024, 4096])
    arguments.add_argument("--only", choices=sorted({fault.name for fault in _FAULTS}), nargs="+", help="faults")
    arguments.add_argument("--window", type=float, default=20, help="seconds of healthy training")
    arguments.add_argument("--delay", type=float, default=0, help="seconds each way to rank 0's machine")
    arguments.add_argument("--loss", type=float, default=0, help="share of frames that it loses")
    arguments.add_argument("--processes", type=int, default=_MAX_PROCESSES, help="ranks above which most are threads")
    return run(arguments.parse_args())


if __name__ == "__main__":
    sys.exit(main())
