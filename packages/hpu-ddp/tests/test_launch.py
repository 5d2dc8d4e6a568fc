"""Launch of the ranks by the strategy."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hpu_core import frameworks
from hpu_testing import Program, machine_env

from .conftest import PROGRAMS, Run
from .rank_reports import check_trained, reports_of


@pytest.fixture(scope="module")
def launched_reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the reports of a script that launches its own ranks."""
    folder = tmp_path_factory.mktemp("launched_reports")
    command = [sys.executable, str(PROGRAMS / "train.py")]
    # With the teardown of the interpreter, which must not fail after a training.
    environment = machine_env(2, folder / "cards", HPU_TESTING_TEARDOWN="1")
    with Program(command, environment, folder, preloaded=True) as running:
        return reports_of(running.wait(150))


def test_script_launches_its_ranks(launched_reports: list[dict[str, Any]]) -> None:
    """Rank 0 is the launching process and has the first device. The port that the bridge's import sets is ignored."""
    ports = {report["port"] for report in launched_reports}

    check_trained(launched_reports, 2)
    assert [(report["module_id"], report["open"]) for report in launched_reports] == [("0", True), ("1", True)]
    assert len(ports) == 1
    assert "12345" not in ports


def test_spawn(run: Run, launched_reports: list[dict[str, Any]]) -> None:
    """The launching process opens no device and has the weights afterwards, here with the other framework."""
    framework = "lightning" if find_spec("pytorch_lightning") is None else "pytorch_lightning"
    done = run("train.py", "--start-method", "spawn", HPU_CORE_FRAMEWORK=framework)

    assert done.code == 0, done.output
    (report,) = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    assert not report["open"]
    # The simulator prints a line for each device that a process of rank 0 opens. The strategy sets the rank before.
    assert re.findall(r"simulated card (\d) of 2", done.output) == ["0"]
    assert report["weights"] == launched_reports[0]["weights"]


# A cell that defines its module, as notebooks do; its class cannot be imported by a new process. torch < 2.5 loads no
# backends, so it imports hpu_core.
_CELL = """
import os
import torch
import hpu_core
from lightning import LightningModule, Trainer

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def on_train_start(self):
        os.write(1, f"rank {self.global_rank} uses module {os.environ['HLS_MODULE_ID']}\\n".encode())

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def fit():
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="hpu", devices=2, max_steps=2, **options)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=2))
    print("trained with", trainer.num_devices, trainer.strategy._start_method)

fit()
fit()
"""


@pytest.mark.skipif(frameworks.current().name != "lightning", reason="Requires: lightning")
@pytest.mark.parametrize("option", [pytest.param("-i", marks=pytest.mark.slow), ""])
def test_a_notebook_forks_by_default(option: str, tmp_path: Path) -> None:
    """`devices=2` starts the ranks of a module that the notebook defines, as often as the notebook likes."""
    cell = tmp_path / "cell.py"
    cell.write_text(_CELL if option else f"import sys\nsys.ps1 = '>>> '\n{_CELL}")
    command = [sys.executable, *filter(None, [option]), str(cell)]
    with Program(command, machine_env(2, tmp_path / "cards"), tmp_path, preloaded=not option) as running:
        done = running.wait(150)

    assert done.code == 0, done.output
    assert done.output.count("trained with 2 fork") == 2
