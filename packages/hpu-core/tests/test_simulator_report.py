"""Tests of the simulator's report with Lightning, whose modules it reads."""

import json
import sys
from pathlib import Path

import pytest

from hpu_testing import Program, machine_env

_PROGRAM = """
import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import HPUAccelerator, SingleHPUStrategy


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)
trainer = pl.Trainer(
    accelerator=HPUAccelerator(),
    strategy=SingleHPUStrategy(),
    devices=1,
    max_epochs=2,
    log_every_n_steps=1,
    logger=pl.loggers.CSVLogger("."),
    callbacks=[pl.callbacks.ModelCheckpoint()],
)
trainer.fit(Model(), loader, loader)
"""


# The first use on a machine compiles the device, which takes half a minute; on old processors more.
@pytest.mark.timeout(900)
def test_report_names_causes_in_lightning(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    script = tmp_path / "train.py"
    script.write_text(_PROGRAM, encoding="utf-8")
    environment = machine_env(1, tmp_path / "cards", HPU_SIM_REPORT=str(records))
    with Program([sys.executable, str(script)], environment, tmp_path, preloaded=True) as program:
        done = program.wait(600)

    assert done.code == 0, done.output
    (path,) = records.glob("process-*.json")
    sites = json.loads(path.read_text(encoding="utf-8"))["sites"]
    syncs = {site["cause"]: site["steps"] for site in sites if site["kind"] == "host_sync"}
    copies = {site["cause"] for site in sites if site["kind"] == "h2d"}
    assert syncs["TQDMProgressBar.on_train_batch_end"] == 8
    assert any(cause.startswith("ModelCheckpoint.on_") for cause in syncs)
    assert "Model.transfer_batch_to_device" in copies
