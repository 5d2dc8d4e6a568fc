"""Programs that a test starts and cannot leave behind."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from hpu_sim.testing import Program, free_port, machine_env
from hpu_sim.testing.processes import wait_for_exit

# Starts a process that waits for ever, tells its number, and ends.
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
"""


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_program_that_ends_leaves_nothing() -> None:
    """Its exit code and what it wrote, on both streams, are kept."""
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    with Program(command, os.environ) as program:
        done = program.wait(60)

    assert (done.code, sorted(done.output.split()), done.leaked_pids) == (3, ["err", "out"], ())


def test_what_a_program_leaves_behind_is_killed() -> None:
    """A process that outlives the program's time is named, and is gone afterwards."""
    with Program([sys.executable, "-c", _PARENT], os.environ) as program:
        wait_for_exit([program.pid], time.monotonic() + 60)
        done = program.wait(0)

    assert done.leaked_pids == (int(done.output),)
    assert not _is_alive(done.leaked_pids[0])


def test_a_failing_test_leaves_nothing() -> None:
    """A program still runs when the context ends by an error, and is killed."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(ZeroDivisionError), Program(command, os.environ) as program:
        raise ZeroDivisionError

    assert not _is_alive(program.pid)


def test_a_machine_of_its_own_knows_no_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a launcher has told this process is not passed on; what else is given is."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    own = machine_env(2, tmp_path, EXTRA="1")

    assert "LOCAL_RANK" not in own
    assert (own["HPU_SIM_DEVICES"], own["HPU_SIM_RUNTIME_DIR"], own["EXTRA"]) == ("2", str(tmp_path), "1")


def test_a_free_port_can_be_bound() -> None:
    """Nobody listens at it."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
