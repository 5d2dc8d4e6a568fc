"""Tests of the commands that run as the ranks of a job, on simulated devices."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpu_doctor.cli import main
from hpu_testing import free_port, machine_env

pytestmark = pytest.mark.usefixtures("forks")


def _start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hpu_doctor", *arguments]
    environment = {**machine_env(2, folder), **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run_ranks(folder: Path, *arguments: str, **of_rank_1: str) -> list[tuple[int, str, str]]:
    """Run two ranks, as torchrun would; return the exit code and the outputs of each."""
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        _start(folder, *arguments, **job, RANK="0", LOCAL_RANK="0"),
        _start(folder, *arguments, **{**job, "RANK": "1", "LOCAL_RANK": "1"}, **of_rank_1),
    ]
    outputs = [rank.communicate(timeout=200) for rank in ranks]
    return [(rank.returncode, *output) for rank, output in zip(ranks, outputs, strict=True)]


def test_ranks_report_on_rank_0(tmp_path: Path) -> None:
    (code, output, errors), (other_code, other_output, _) = _run_ranks(
        tmp_path, "check-collectives", "--mib", "1", "--json"
    )
    report = json.loads(output)

    assert (code, other_code, other_output) == (0, 0, ""), errors
    assert (report["ok"], report["world_size"], report["bytes"]) == (True, 2, 1 << 20)


# test_check.py and test_issues.py show it without a process.
@pytest.mark.slow
def test_command_reports_a_rank_without_a_card(tmp_path: Path) -> None:
    """The other rank, which waits for it, is not named."""
    (code, output, _), (_, _, errors) = _run_ranks(
        tmp_path, "check-collectives", "--mib", "1", "--timeout", "5", HABANA_VISIBLE_MODULES="0"
    )

    assert code == 1
    assert "Error: rank 1 did not report" in output
    assert "HABANA_VISIBLE_MODULES=0" in errors


def test_process_without_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["check-collectives"])

    assert result.exit_code == 2
    assert "torchrun --nproc-per-node=8 --no-python hpu-doctor check-collectives" in result.output
