"""HPUDataModule with torchvision, from the folder that TORCHVISION_FOLDER names."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import Program, machine_env

_PROGRAM = Path(__file__).parent / "programs" / "images.py"


def _train(accelerator: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    variables = {"PYTHONPATH": os.environ["TORCHVISION_FOLDER"], "PT_HPU_LAZY_MODE": "0"}
    command = [sys.executable, str(_PROGRAM), accelerator]
    with Program(command, machine_env(2, folder / "cards", **variables), folder) as program:
        done = program.wait(300)
    assert done.code == 0, done.output
    [line] = re.findall("^RESULT (.*)", done.output, re.MULTILINE)
    result: dict[str, Any] = json.loads(line)
    return result


def test_folders_of_images_train_two_cards_as_two_processes_on_the_cpu(tmp_path: Path) -> None:
    on_cards, on_cpu = _train("hpu", tmp_path / "hpu"), _train("cpu", tmp_path / "cpu")

    assert on_cards.pop("weights") == pytest.approx(on_cpu.pop("weights"), rel=1e-5)
    assert on_cards == pytest.approx(on_cpu, rel=1e-5)
    assert on_cards["steps"] == 4 * 48 // (2 * 4)
    assert on_cards["accuracy"] == 1.0
