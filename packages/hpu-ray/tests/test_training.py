"""Tests of training in a real Ray cluster on this machine, with simulated cards."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import machine_env
from hpu_testing.processes import wait_for_exit

pytest.importorskip("ray.train")

PROGRAM = Path(__file__).parent / "programs" / "train.py"
STRATEGIES = {"RayHPUDDPStrategy": "hpu_ddp", "RayHPUFSDPStrategy": "hpu_fsdp", "RayHPUDeepSpeedStrategy": "deepspeed"}
# Seconds, as in the program.
HANG_TIMEOUT = 30
Train = Callable[..., list[dict[str, Any]]]

# Ray starts nine processes that import torch, which takes minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the program."""

    def run(how: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PT_HPU_LAZY_MODE": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray's own limit is too short for a busy machine.
            "RAY_agent_register_timeout_ms": "300000",
            # It would listen on all addresses.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "HPU_RAY_TEST": str(tmp_path),
        }
        environment = os.environ | machine_env(2, tmp_path, **variables)
        command = [sys.executable, str(PROGRAM), how, str(tmp_path), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def train(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Train:
    """Return a function that runs the program, and returns the result of each rank."""

    def train(how: str, *arguments: str) -> list[dict[str, Any]]:
        done = run(how, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]

    return train


def _left_over(marker: Path) -> list[int]:
    """Return the processes of the test that still run, by a variable that all inherit; Ray's daemons end after it."""
    wait_for_exit(_pids(marker), time.monotonic() + 60)
    return _pids(marker)


def _pids(marker: Path) -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_of_test(process, marker)]


def _is_of_test(process: Path, marker: Path) -> bool:
    try:
        return f"HPU_RAY_TEST={marker}".encode() in (process / "environ").read_bytes()
    except OSError:
        # It has exited, or belongs to another user.
        return False


@pytest.mark.parametrize("name", STRATEGIES)
def test_ray_trains_like_two_cards_without_it(name: str, train: Train, tmp_path: Path) -> None:
    if name == "RayHPUDeepSpeedStrategy" and find_spec("deepspeed") is None:
        pytest.skip("Requires: deepspeed")
    expected = train("plain", STRATEGIES[name])
    ranks = train("ray", name)

    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert [rank["weights"] for rank in ranks] == [rank["weights"] for rank in expected]
    assert {rank["module"] for rank in ranks} == {"0,1"}
    assert _left_over(tmp_path) == []


def test_killed_worker_resumes_from_the_last_checkpoint(train: Train, tmp_path: Path) -> None:
    expected = train("plain", "hpu_ddp")
    ranks = train("ray", "RayHPUDDPStrategy", "kill")

    assert (tmp_path / "killed").exists()
    assert [rank["resumed"] for rank in ranks] == [True, True]
    assert [(rank["weights"], rank["loss"]) for rank in ranks] == [(r["weights"], r["loss"]) for r in expected]
    assert _left_over(tmp_path) == []


def test_hung_worker_exits_and_is_named(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Ray itself waits for it for ever, as HCCL does."""
    done = run("ray", "RayHPUDDPStrategy", "hang")

    assert done.returncode == 1
    message = r"rank 1 \(pid \d+ on \S+\) has made no progress for (\d+) s"
    errors = re.findall(message, done.stdout + done.stderr)
    assert errors, done.stdout + done.stderr
    assert int(errors[0]) <= HANG_TIMEOUT
    assert "[Rank 1 Error Snippet]" in done.stderr
    assert _left_over(tmp_path) == []
