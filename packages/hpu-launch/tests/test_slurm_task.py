"""Tests of the choice of free modules by the tasks of a SLURM step."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpu_launch import slurm_task
from hpu_launch.slurm_task import share_modules, step_folder
from hpu_testing import machine_env


def test_tasks_of_a_machine_list_the_modules_by_local_rank(tmp_path: Path) -> None:
    """The first task of two takes the higher module."""
    results: dict[int, str] = {}

    def run(local_rank: int) -> None:
        results[local_rank] = share_modules(tmp_path, local_rank, 2, lambda n: (7 - 2 * local_rank,) * n)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {0: "7,5", 1: "7,5"}


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_folder_that_others_could_control_is_refused(tmp_path: Path, kind: str) -> None:
    """Another user can guess its name, and create it before the job starts."""
    folder, target = tmp_path / "hpu-modules-0-42-0-0", tmp_path / "target"
    target.mkdir()
    if kind == "link":
        folder.symlink_to(target)
    elif kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.touch()

    with pytest.raises(PermissionError, match="must be of this user alone"):
        share_modules(folder, 0, 1, lambda n: (0,) * n)
    assert not list(target.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "hpu-modules-0-42-0-0"
    folder.mkdir(mode=0o700)
    os.chown(folder, 1234, 1234)

    with pytest.raises(PermissionError, match="must be of this user alone"):
        share_modules(folder, 0, 1, lambda n: (0,) * n)


def test_missing_task_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_task, "_TIMEOUT", 0.0)

    with pytest.raises(TimeoutError, match="local ranks 1, 2 took no module"):
        share_modules(tmp_path, 0, 3, lambda n: (0,) * n)


def test_requeued_job_does_not_read_its_former_modules() -> None:
    job = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0"}

    assert step_folder(job).name == f"hpu-modules-{os.getuid()}-42-0-0"
    assert step_folder({**job, "SLURM_RESTART_COUNT": "1"}).name == f"hpu-modules-{os.getuid()}-42-0-1"


def test_two_jobs_on_a_machine_get_different_cards(tmp_path: Path) -> None:
    """Each is one task, and ends when its standard input closes."""
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(os.environ['HABANA_VISIBLE_MODULES'], flush=True); sys.stdin.read()")
    command = [sys.executable, "-m", "hpu_launch.slurm_task", str(script)]
    slurm = {"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1", "TMPDIR": str(tmp_path)}
    jobs = []
    for number in ("1", "2"):
        environment = machine_env(2, tmp_path, **slurm, SLURM_JOB_ID=number, HPU_MODULE_LOCKS=str(tmp_path / "locks"))
        jobs.append(
            subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    modules = [job.stdout.readline().strip() for job in jobs if job.stdout]
    for job in jobs:
        job.communicate(timeout=60)

    assert sorted(modules) == ["0", "1"]
