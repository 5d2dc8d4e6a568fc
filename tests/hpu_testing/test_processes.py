"""Tests of programs that cannot outlive a test."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from hpu_testing import Program
from hpu_testing.processes import wait_for_exit

# Starts a process that never exits, prints its pid, and exits.
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
"""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_leaked_process_is_reported_and_killed() -> None:
    with Program([sys.executable, "-c", _PARENT], os.environ) as program:
        wait_for_exit([program.pid], time.monotonic() + 60)
        done = program.wait(0)

    assert done.leaked_pids == (int(done.output),)
    assert not _is_alive(done.leaked_pids[0])


def test_exception_in_the_context_kills_the_program() -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(ZeroDivisionError), Program(command, os.environ) as program:
        raise ZeroDivisionError

    assert not _is_alive(program.pid)
