"""Processes around this one: the ranks that it has launched, and the one that launched it, the first of its machine."""

import contextlib
import functools
import os
import subprocess
from pathlib import Path
from typing import Final

from hpu_core.launcher_env import LAUNCHER_PID

LAUNCHED: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Processes of the ranks that this process launched, by rank; they outlive the strategy that did."""


@functools.cache
def launcher_pid() -> int | None:
    """Return the process that has launched this rank; None if a user or an engine has. Removes the variable."""
    pid = os.environ.pop(LAUNCHER_PID, None)
    return None if pid is None else int(pid)


def neighbors(first_rank: int) -> dict[int, int]:
    """Return the processes around this one that run, by rank."""
    found = {rank: process.pid for rank, process in LAUNCHED.items() if process.poll() is None}
    pid = launcher_pid()
    return found if pid != os.getppid() else {**found, first_rank: pid}


def exits(first_rank: int) -> dict[int, str]:
    """Return how those that run no more have ended, by rank: {1: "killed by signal 9"}."""
    codes = {rank: process.poll() for rank, process in LAUNCHED.items()}
    found = {
        rank: f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        for rank, code in codes.items()
        if code is not None
    }
    return found if launcher_pid() in {None, os.getppid()} else {**found, first_rank: "its process has ended"}


def state(path: Path) -> str:
    """Return the state of a process or thread by its folder in /proc, such as "T" if it is stopped; "" if unknown."""
    with contextlib.suppress(OSError):
        # The name before the state may have spaces and parentheses.
        return (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    return ""
