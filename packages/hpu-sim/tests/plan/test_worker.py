"""Processes that record candidates."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.options import Options
from hpu_sim.plan.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.needs_torch("2.8", "interfaces for the planner"),
    pytest.mark.usefixtures("without_device"),
]

_STEP = """
import torch
from hpu_sim import plan
for _ in range(2):
    with plan.step():
        torch.ones(4, device="hpu").relu()
"""


def _worker(path: Path, program: str) -> Worker:
    script = path / "train.py"
    script.write_text(program)
    return Worker(str(script), ())


def test_a_candidate_meets_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    """Modules and the environment are as at the first run."""
    program = (
        "import os, sys\nassert 'FIRST' not in os.environ and 'first' not in sys.modules\n"
        "os.environ['FIRST'] = '1'\nsys.modules['first'] = sys\n"
    )
    worker = _worker(tmp_path, program + _STEP)

    recordings = [worker.record(Options(devices=2)) for _ in range(2)]

    assert [len(each.steps) for each in recordings] == [2, 2]


def test_a_process_that_dies_has_its_exit_code_and_last_words(tmp_path: Path) -> None:
    worker = _worker(tmp_path, "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n")

    with pytest.raises(PlanError, match=r"ended with exit code -9\n  \| before"):
        worker.record(Options())


def test_a_program_that_exits_says_why(tmp_path: Path) -> None:
    parser = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()\n"
    worker = _worker(tmp_path, parser)

    with pytest.raises(PlanError, match=r"exited with 2(.|\n)*arguments are required: --data"):
        worker.record(Options())


def test_an_error_of_the_planner_keeps_its_line(tmp_path: Path) -> None:
    worker = _worker(tmp_path, _STEP.replace("relu()", "unique()"))

    with pytest.raises(PlanError, match="depends on data") as raised:
        worker.record(Options())

    assert "train.py:6: " in str(raised.value)


def test_each_candidate_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _worker(tmp_path, _STEP).record(Options(devices=2, batch_size=None))

    assert capsys.readouterr().err == "planning rank 0 of 2\n"


def test_what_the_first_candidate_imported_of_a_framework_is_there_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner imports a framework that the first process had; what is the program's own, each process imports."""
    count = tmp_path / "count"
    for name in ("framework_of_test", "own_of_test"):
        (tmp_path / f"{name}.py").write_text(
            f"with open({str(count)!r}, 'a') as file:\n    file.write({name!r} + ' ')\n"
        )
    worker = _worker(tmp_path, "import framework_of_test, own_of_test\n" + _STEP)
    monkeypatch.setattr("hpu_sim.plan.worker._FRAMEWORKS", {"framework_of_test"})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "framework_of_test", None)
    del sys.modules["framework_of_test"]

    for _ in range(3):
        worker.record(Options())

    imported = count.read_text().split()
    assert imported.count("framework_of_test") == 2
    assert imported.count("own_of_test") == 3
