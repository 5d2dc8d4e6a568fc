"""Time and memory limits of a process, watched from its parent."""

import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.02
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
# What a program and the libraries below it may write: a trace is a few megabytes.
_MAX_FILE_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process.

    Attributes:
        seconds: Wall-clock time.
        bytes: Resident memory.
    """

    seconds: float
    bytes: int = 16 << 30


def bound_files() -> None:
    """Have this process write no core file and no file of absurd size, and lead a process group of its own."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def wait(pids: list[int], limits: Limits) -> str | None:
    """Wait for child processes, each the leader of a group, and kill those groups at a limit.

    The address space is not limited, because a card's driver maps far more than a process uses.

    Returns:
        How they ended if not with exit code 0, None otherwise.
    """
    running = set(pids)
    failures: list[str] = []
    deadline = time.monotonic() + limits.seconds
    try:
        while running and not failures:
            for pid in sorted(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    running.discard(pid)
                    failures += _failure(status)
            if any(_resident_bytes(pid) > limits.bytes for pid in running):
                failures.append(f"used more than {limits.bytes >> 30} GiB of memory")
            elif running and time.monotonic() > deadline:
                failures.append(f"did not end within {limits.seconds:g} seconds")
            if running and not failures:
                time.sleep(_POLL_SECONDS)
    finally:
        # Also when this process is interrupted.
        for pid in running:
            kill_group(pid)
            os.waitpid(pid, 0)
    return failures[0] if failures else None


def kill_group(pid: int) -> None:
    """Kill the processes of a group that a child of this process leads."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            # The child has not become a leader yet, or has ended.
            continue
        return


def _failure(status: int) -> list[str]:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return [f"was ended by {signal.Signals(-code).name}"]
    return [f"ended with exit code {code}"] if code else []


def _resident_bytes(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0
