"""Measure rendezvous and failure detection of jobs of up to thousands of ranks, without cards and models.

A rank is its rendezvous and its monitor, the classes of a training. Rank 0 is a process, and so are every 64 others,
whose ranks are threads. After a window without failures, the last rank raises an error, and all note when they know.

    python tests/trials/scale.py [--ranks 8 64] [--window 20] [--json after.json]

`nox -s scale` calls it.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from unittest import mock

from harness import Table, parser, wait
from hpu_core.distributed import monitor as module
from hpu_core.distributed.monitor import Monitor
from hpu_core.distributed.progress import Progress
from hpu_core.distributed.rendezvous import Job, join
from hpu_testing import free_port

_RANKS_PER_PROCESS = 64
_LOOK = 0.05
# Seconds that all ranks may take to join, and to know of a failure.
_JOIN_LIMIT, _LIMIT = 300.0, 60.0
_TIMEOUT = timedelta(minutes=10)


class Board:
    """Shared memory of all processes.

    Attributes:
        joined: When each rank had joined, in seconds of the monotonic clock.
        known: When it knew of the failure.
        processor: Processor time that each process took in the window, in seconds.
        state: When the ranks may join, when the last one fails, and when all end.
    """

    def __init__(self, ranks: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * (3 * ranks + 3))).cast("d")
        self.joined, self.known, self.processor = (cells[index * ranks : (index + 1) * ranks] for index in range(3))
        self.state = cells[3 * ranks :]


def run(job: Job, ranks: range, board: Board) -> None:
    """Run ranks as threads until the end."""
    with (
        mock.patch.object(Monitor, "_end_if_due"),
        mock.patch.object(module.atexit, "register"),  # type: ignore[attr-defined]
        ThreadPoolExecutor(len(ranks)) as pool,
    ):
        threading.Thread(target=measure, args=(ranks[0], board), daemon=True).start()
        list(pool.map(lambda rank: run_rank(replace(job, rank=rank), board), ranks))
    os._exit(0)


def measure(rank: int, board: Board) -> None:
    """Measure the processor time of this process between the last join and the failure."""
    wait(lambda: all(board.joined), _JOIN_LIMIT)
    start = time.process_time()
    wait(lambda: board.state[1] > 0, _JOIN_LIMIT)
    board.processor[rank] = time.process_time() - start


def run_rank(job: Job, board: Board) -> None:
    """Join, and wait for the failure, which is that of the last rank."""
    wait(lambda: board.state[0] > 0, _JOIN_LIMIT)
    monitor = Monitor(join(job, _TIMEOUT), Progress())
    board.joined[job.rank] = time.monotonic()
    wait(lambda: board.state[1] > 0, _JOIN_LIMIT)
    if job.rank == job.world_size - 1:
        monitor.fail(ValueError("an error of the user's"))
    wait(lambda: monitor.failure is not None, _LIMIT)
    board.known[job.rank] = time.monotonic()
    wait(lambda: board.state[2] > 0, _LIMIT)


def trial(ranks: int, window: float, table: Table) -> None:
    """Run a job, and print its row."""
    board = Board(ranks)
    job = Job("127.0.0.1", free_port(), 0, 0, ranks, _TIMEOUT)
    parts = [range(1), *(range(first, min(first + _RANKS_PER_PROCESS, ranks)) for first in range(1, ranks, 64))]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=run, args=(job, part, board), daemon=True) for part in parts]
    for process in processes:
        process.start()
    board.state[0] = start = time.monotonic()
    problems = [] if wait(lambda: all(board.joined), _JOIN_LIMIT) else ["not joined"]
    time.sleep(window)
    board.state[1] = failure = time.monotonic()
    problems += [] if wait(lambda: all(board.known), _LIMIT) else ["not known"]
    time.sleep(10 * _LOOK)
    board.state[2] = 1.0
    for process in processes:
        process.join(_LIMIT)
        process.kill()
    shares = [board.processor[part[0]] / window * 100 for part in parts]
    plain = sum(shares[1:]) / (ranks - 1)
    interval = max(1.0, ranks / module._REPORT_RATE)
    known = sorted(time - failure for time in board.known)
    cells = (ranks, f"{max(board.joined) - start:.1f}", f"{interval:.1f}", f"{shares[0]:.1f} %", f"{plain:.2f} %")
    table.add(*cells, f"{known[1]:.1f} to {known[-1]:.1f}", problems=problems, ranks=ranks, known=known, shares=shares)


def main() -> int:
    """Run all trials, and return 1 if one has a problem."""
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 1024])
    arguments.add_argument("--window", type=float, default=20, help="seconds without a failure")
    options = arguments.parse_args()
    columns = ("ranks", "join, s", "interval, s", "rank 0 and the store", "a plain rank", "known after, s")
    table = Table(*columns, options=options)
    for ranks in options.ranks:
        trial(ranks, options.window, table)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
