"""Tests of time and memory limits."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from hpu_doctor.verify import supervision
from hpu_doctor.verify.supervision import Limits

if TYPE_CHECKING:
    from collections.abc import Callable


def fork(function: Callable[[], object]) -> int:
    """Run a function in a child process that leads a group, and return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        supervision.bound_files()
        function()
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    ("function", "ending"),
    [
        (lambda: None, None),
        (lambda: os._exit(3), "ended with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was ended by SIGKILL"),
    ],
)
def test_ending(function: Callable[[], object], ending: str | None) -> None:
    assert supervision.wait([fork(function)], Limits(60)) == ending


def test_time_limit() -> None:
    assert supervision.wait([fork(lambda: time.sleep(600))], Limits(0.1)) == "did not end within 0.1 seconds"


def test_memory_limit() -> None:
    def allocate() -> None:
        kept = bytearray(64 << 20)
        time.sleep(600 if kept else 0)

    ending = supervision.wait([fork(allocate)], Limits(60, bytes=32 << 20))

    assert ending is not None
    assert ending.startswith("used more than")


def test_other_ranks_end_with_the_first_failure() -> None:
    pids = [fork(lambda: time.sleep(600)), fork(lambda: os._exit(1))]

    assert supervision.wait(pids, Limits(60)) == "ended with exit code 1"
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], os.WNOHANG)


def test_processes_of_a_program_end_with_it() -> None:
    read, write = os.pipe()

    def start_another() -> None:
        if not os.fork():
            time.sleep(600)
        time.sleep(600)

    assert supervision.wait([fork(start_another)], Limits(0.2)) is not None

    os.close(write)
    # Every copy of the writing end is closed when all of them have ended.
    assert os.read(read, 1) == b""
    os.close(read)
