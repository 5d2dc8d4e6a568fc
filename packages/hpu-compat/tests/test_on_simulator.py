"""Tests of unchanged programs for Lightning 1.x and lightning-habana, on simulated devices."""

from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks

from .conftest import Run

_framework = frameworks.current()
_IMPORT = {"lightning": "import lightning.pytorch as pl", "pytorch_lightning": "import pytorch_lightning as pl"}
_ROOT = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]

# Common part of the programs: a module, and a Trainer for one step without output.
_MODULE = f"""
{_IMPORT[_framework.name]}
import torch
QUIET = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
QUIET["max_steps"] = 1
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        result = self.layer(batch)
        self.trained = (str(result.dtype), result.device.type)
        return result.sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def fit(trainer):
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(4, 4)))
    print(type(trainer.strategy).__name__, *module.trained)
"""

# For Lightning 1.6 to 1.9, importing Lightning only.
_OLD_LIGHTNING = f"""
from {_ROOT}.plugins import HPUPrecisionPlugin
from {_ROOT}.accelerators import HPUAccelerator
from {_ROOT}.strategies import SingleHPUStrategy
for name, text in {{"ops_bf16_mnist.txt": "linear", "ops_fp32_mnist.txt": "softmax"}}.items():
    open(name, "w").write(text)
plugin = HPUPrecisionPlugin(
    precision=16,
    opt_level="O1",
    verbose=False,
    bf16_file_path="ops_bf16_mnist.txt",
    fp32_file_path="ops_fp32_mnist.txt",
)
fit(pl.Trainer(accelerator="hpu", devices=1, plugins=[plugin], **QUIET))
trainer = pl.Trainer(accelerator=HPUAccelerator(), strategy=SingleHPUStrategy(), **QUIET)
print(isinstance(trainer.accelerator, HPUAccelerator), isinstance(trainer.strategy, SingleHPUStrategy))
"""

# For lightning-habana 1.x.
_ARCHIVED = """
from lightning_habana.pytorch.accelerator import HPUAccelerator
from lightning_habana.pytorch.plugins.precision import HPUPrecisionPlugin
from lightning_habana.pytorch.strategies import SingleHPUStrategy
from lightning_habana.utils.resources import device_count, get_hpu_synapse_version
plugin = HPUPrecisionPlugin(precision="bf16-mixed", device="hpu")
fit(pl.Trainer(accelerator=HPUAccelerator(), devices=1, strategy=SingleHPUStrategy(), plugins=[plugin], **QUIET))
print(isinstance(pl.Trainer(accelerator="hpu", devices=1, precision="bf16-mixed", **QUIET).precision_plugin,
      HPUPrecisionPlugin))
import lightning_habana
print(device_count(), get_hpu_synapse_version(), lightning_habana.HPU_AVAILABLE)
"""

# For LightningCLI.
_CONFIGURATION = """
trainer:
  accelerator: {class_path: lightning_habana.pytorch.accelerator.HPUAccelerator}
  devices: 1
  strategy: {class_path: ROOT.strategies.SingleHPUStrategy}
  plugins:
  - class_path: lightning_habana.pytorch.plugins.HPUPrecisionPlugin
    init_args: {precision: bf16-mixed, device: hpu}
  logger: false
""".replace("ROOT", _ROOT)

_COMMAND_LINE = f"""
import sys
from {_ROOT}.cli import LightningCLI
sys.argv = ["train.py", "--config", "config.yaml"]
trainer = LightningCLI(pl.LightningModule, run=False, save_config_callback=None).trainer
print(type(trainer.strategy).__module__, trainer.precision_plugin.precision)
"""

# Lightning 2.0 imports HMP, which is part of SynapseAI up to 1.12.
_MACHINE = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": "1.11.0" if _framework.version < Version("2.1") else "1.24.1"}

pytestmark = [
    pytest.mark.usefixtures("forks"),
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
]


def test_program_for_lightning_1_trains(run: Run) -> None:
    """The op lists are applied."""
    lines = run(_MODULE + _OLD_LIGHTNING, HPU_CORE_FRAMEWORK=_framework.name, **_MACHINE)

    assert lines[-2:] == ["SingleHPUStrategy torch.bfloat16 hpu", "True True"]


def test_program_for_the_archived_package_trains(run: Run) -> None:
    """Strings select the same classes."""
    lines = run(_MODULE + _ARCHIVED, HPU_CORE_FRAMEWORK=_framework.name, **_MACHINE)

    assert lines[-3:] == ["SingleHPUStrategy torch.bfloat16 hpu", "True", f"1 {_MACHINE['HPU_SIM_RELEASE']} True"]


def test_lightning_cli_finds_classes_by_either_path(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(_CONFIGURATION)
    lines = run(_MODULE + _COMMAND_LINE, HPU_CORE_FRAMEWORK=_framework.name, **_MACHINE)

    assert lines[-1] == "hpu_core.strategy bf16-mixed"
