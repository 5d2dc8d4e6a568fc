"""Processes around this one."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_core.distributed import processes
from hpu_core.distributed.processes import LAUNCHED, exits, launcher_pid, neighbors, state
from hpu_core.launcher_env import LAUNCHER_PID

from .jobs import launched_process


@pytest.fixture(autouse=True)
def launched() -> Iterator[dict[int, Any]]:
    """The ranks that this process has launched, none at first."""
    launcher_pid.cache_clear()
    LAUNCHED.clear()
    yield LAUNCHED
    LAUNCHED.clear()
    launcher_pid.cache_clear()


def test_the_launcher_of_a_rank_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_PID, "4711")

    assert (launcher_pid(), launcher_pid(), LAUNCHER_PID in os.environ) == (4711, 4711, False)


def test_launched_ranks_run_or_have_exited(launched: dict[int, Any]) -> None:
    launched.update({1: launched_process(-9), 2: launched_process(1), 3: launched_process()})

    assert (neighbors(0), exits(0)) == ({3: 1}, {1: "killed by signal 9", 2: "exit code 1"})


def test_the_launcher_runs_or_has_exited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "launcher_pid", os.getppid)
    assert (neighbors(8), exits(8)) == ({8: os.getppid()}, {})

    monkeypatch.setattr(processes, "launcher_pid", lambda: os.getppid() + 1)
    assert (neighbors(8), exits(8)) == ({}, {8: "its process has ended"})


def test_a_process_has_a_state_until_it_is_gone() -> None:
    assert state(Path(f"/proc/{threading.main_thread().native_id}")) in {"R", "S"}
    assert state(Path(f"/proc/{1 << 22}")) == ""
