"""Tests of programs that cannot outlive a test."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from hpu_testing import Program, free_port, machine_env, processes
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


def test_completed_program_has_exit_code_and_output() -> None:
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    with Program(command, os.environ) as program:
        done = program.wait(60)

    assert (done.code, sorted(done.output.split()), done.leaked_pids) == (3, ["err", "out"], ())


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


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_missing_command_leaves_no_file_open() -> None:
    with pytest.raises(FileNotFoundError), Program(["no-such-command"], {}):
        pass
    gc.collect()


def test_machine_env_has_no_variables_of_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    own = machine_env(2, tmp_path, EXTRA="1")

    assert "LOCAL_RANK" not in own
    assert (own["HPU_SIM_DEVICES"], own["HPU_SIM_RUNTIME_DIR"], own["EXTRA"]) == ("2", str(tmp_path), "1")


@pytest.fixture
def port_range(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Range of ports that the kernel chooses from."""
    (tmp_path / "range").write_text(request.param, encoding="ascii")
    monkeypatch.setattr(processes, "_PORT_RANGE", tmp_path / "range")


@pytest.mark.usefixtures("port_range")
@pytest.mark.parametrize("port_range", ["32768\t60999\n", "1024\t65535\n"], indirect=True)
def test_free_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


@pytest.mark.usefixtures("port_range")
@pytest.mark.parametrize("port_range", ["32768\t60999\n"], indirect=True)
def test_free_port_is_none_that_the_kernel_chooses() -> None:
    """The connection of another program could take such a port before the caller does."""
    assert all(free_port() < 32768 for _ in range(20))
