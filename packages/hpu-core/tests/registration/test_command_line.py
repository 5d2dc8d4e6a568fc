"""LightningCLI on simulated cards, where nothing of ours is imported."""

import json
import logging
import sys
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.registration import _command_line, plugins

from .programs import make_peer, output

_framework = frameworks.current()
_PYTORCH = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]

_PROGRAM = f"""
import contextlib, io, json, logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable()
import torch
from {_PYTORCH} import LightningModule, Trainer
from {_PYTORCH}.cli import LightningCLI
class Module(LightningModule):
    def __init__(self, width: int = 4):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(4, 4))
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def run(*arguments):
    trainer = LightningCLI(Module, args=list(arguments), save_config_callback=None).trainer
    return [type(trainer.accelerator).__name__, type(trainer.strategy).__name__, trainer.strategy.root_device.type]
def help_of(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        LightningCLI(Module, args=list(arguments))
    return text.getvalue()
quiet = ["fit", "--trainer.max_steps=1", "--trainer.logger=false", "--trainer.enable_checkpointing=false",
         "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.devices=1"]
print(json.dumps({{
    "names": run(*quiet, "--trainer.accelerator=hpu", "--trainer.strategy=hpu_single"),
    "class": run(*quiet, "--trainer.accelerator=hpu", "--trainer.strategy.class_path=SingleHPUStrategy"),
    "config": run(*quiet, "--config=run.yaml"),
    "help": help_of("fit", "--help"),
    "help of the class": help_of("fit", "--trainer.strategy.help=SingleHPUStrategy"),
}}))
"""
_CONFIG = """
trainer:
  accelerator: hpu
  strategy:
    class_path: hpu_core.SingleHPUStrategy
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    """What the command line made of its arguments, by what they were."""
    if Version(torch.__version__) < Version("2.5") or _framework.version < Version("2.2"):
        pytest.skip("Requires: torch 2.5, which loads backends, and a Lightning that knows this jsonargparse")
    pytest.importorskip("jsonargparse")
    folder = tmp_path_factory.mktemp("command-line")
    (folder / "run.yaml").write_text(_CONFIG)
    found: dict[str, list[str] | str] = json.loads(output(_PROGRAM, folder, HPU_SIM_DEVICES="1", COLUMNS="500")[-1])
    return found


@pytest.mark.parametrize("way", ["names", "class", "config"])
def test_the_command_line_trains_on_the_card(way: str, answers: dict[str, list[str] | str]) -> None:
    """By Lightning's names, by the names of our classes alone, and by a file with a class's path."""
    assert answers[way] == ["HPUAccelerator", "SingleHPUStrategy", "hpu"]


@pytest.mark.parametrize("name", ["HPUAccelerator", "SingleHPUStrategy"])
def test_the_help_shows_our_classes(name: str, answers: dict[str, list[str] | str]) -> None:
    """Among the known subclasses."""
    assert f"hpu_core.{name}" in answers["help"]


def test_the_help_of_a_class_is_its_docstrings(answers: dict[str, list[str] | str]) -> None:
    """With every argument."""
    assert "--trainer.strategy.checkpoint_io" in answers["help of the class"]


def test_classes_of_plugins_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be passed to a Trainer; one that cannot be loaded keeps nobody from the others."""
    offers = """Plugin(
        strategies={"a": ClassPaths("peer_strategy:Broken"), "b": ClassPaths("peer_strategy:Whole")},
        precision=ClassPaths("peer_precision:Whole"),
        profilers={"c": "peer_profiler:Whole"},
    )"""
    make_peer(tmp_path, "peer", offers)
    for name in ("peer_strategy", "peer_precision", "peer_profiler"):
        (tmp_path / f"{name}.py").write_text("class Whole: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.installed.cache_clear()
    try:
        _command_line.load_classes(_framework.name)

        assert {"peer_strategy", "peer_precision", "peer_profiler"} <= set(sys.modules)
    finally:
        plugins.installed.cache_clear()
        for name in ("peer", "peer_strategy", "peer_precision", "peer_profiler"):
            sys.modules.pop(name, None)


def test_a_class_that_cannot_be_loaded_is_told_to_whoever_asks(caplog: pytest.LogCaptureFixture) -> None:
    """In the log, at its lowest level."""
    with caplog.at_level(logging.DEBUG):
        _command_line._load("no_such_module:Class")

    assert "no_such_module:Class is not shown" in caplog.text
