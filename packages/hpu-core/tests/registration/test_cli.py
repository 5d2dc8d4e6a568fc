"""Tests of LightningCLI on simulated devices, in programs that import nothing but Lightning."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks, plugins
from hpu_core.registration import _cli

from .programs import PYTORCH, Server

_framework = frameworks.current()

_PROGRAM = f"""
import contextlib, io, json, logging, os, warnings
warnings.simplefilter("ignore")
logging.disable()
os.environ["COLUMNS"] = "500"
import torch
from {PYTORCH} import LightningModule, Trainer
from {PYTORCH}.cli import LightningCLI
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
def run(*arguments, runs=False):
    # The parser without subcommands takes a fourth of the time.
    trainer = LightningCLI(Module, args=list(arguments), save_config_callback=None, run=runs).trainer
    return [type(trainer.accelerator).__name__, type(trainer.strategy).__name__, trainer.strategy.root_device.type]
def help_of(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        LightningCLI(Module, args=list(arguments), run=False)
    return text.getvalue()
quiet = ["--trainer.max_steps=1", "--trainer.logger=false", "--trainer.enable_checkpointing=false",
         "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.devices=1"]
print(json.dumps({{
    "names": run("fit", *quiet, "--trainer.accelerator=hpu", "--trainer.strategy=hpu_single", runs=True),
    "paths": run(*quiet, "--trainer.accelerator=hpu_core.HPUAccelerator",
                 "--trainer.strategy=hpu_core.SingleHPUStrategy"),
    "class": run(*quiet, "--trainer.accelerator=hpu", "--trainer.strategy.class_path=SingleHPUStrategy"),
    "config": run(*quiet, "--config=run.yaml"),
    "help": help_of("--help"),
    "help of the class": help_of("--trainer.strategy.help=SingleHPUStrategy"),
}}))
"""
_CONFIG = """
trainer:
  accelerator: hpu
  strategy:
    class_path: hpu_core.SingleHPUStrategy
"""


@pytest.fixture(scope="module")
def results(server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    """Classes that LightningCLI constructed, and its help texts."""
    if Version(torch.__version__) < Version("2.5") or _framework.version < Version("2.2"):
        pytest.skip("Requires: torch 2.5, which loads backends, and a Lightning that knows this jsonargparse")
    pytest.importorskip("jsonargparse")
    config = tmp_path_factory.mktemp("command-line") / "run.yaml"
    config.write_text(_CONFIG)
    program = _PROGRAM.replace("run.yaml", str(config))
    parsed: dict[str, list[str] | str] = json.loads(server(HPU_SIM_DEVICES="1").output(program)[-1])
    return parsed


@pytest.mark.parametrize("arguments", ["names", "paths", "class", "config"])
def test_cli_selects_classes(arguments: str, results: dict[str, list[str] | str]) -> None:
    """Registered names, class paths, bare class names and class paths in a file all select hpu-core's classes."""
    assert results[arguments] == ["HPUAccelerator", "SingleHPUStrategy", "hpu"]


def test_help_lists_classes_and_their_arguments(results: dict[str, list[str] | str]) -> None:
    assert all(f"hpu_core.{name}" in results["help"] for name in ("HPUAccelerator", "SingleHPUStrategy"))
    assert "--trainer.strategy.checkpoint_io" in results["help of the class"]


@pytest.fixture
def plugin_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plugin: Callable[[Path, str, str], None]
) -> Iterator[set[str]]:
    """Modules of an installed plugin, one of whose classes does not exist."""
    plugin = """Plugin(
        strategies={"a": ClassPaths("peer_strategy:Missing"), "b": ClassPaths("peer_strategy:Existing")},
        precision=ClassPaths("peer_precision:Existing"),
        profilers={"c": "peer_profiler:Existing"},
    )"""
    make_plugin(tmp_path, "peer", plugin)
    modules = {"peer_strategy", "peer_precision", "peer_profiler"}
    for name in modules:
        (tmp_path / f"{name}.py").write_text("class Existing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.installed.cache_clear()
    yield modules
    plugins.installed.cache_clear()
    for name in ("peer", *modules):
        sys.modules.pop(name, None)


def test_classes_of_plugins_are_loaded(plugin_modules: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """A class that cannot be imported is skipped, and logged for debugging."""
    with caplog.at_level(logging.DEBUG):
        _cli.load_classes(_framework.name)

    assert plugin_modules <= set(sys.modules)
    assert "LightningCLI does not list peer_strategy:Missing, which cannot be imported" in caplog.text
