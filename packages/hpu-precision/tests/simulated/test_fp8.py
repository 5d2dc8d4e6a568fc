"""Tests of training in fp8 with the simulated transformer engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin
from hpu_testing.modules import make_loader, to_floats

from .modules import Classifier

_lightning = frameworks.current()

MakeTrainer = Callable[..., Any]

pytestmark = [
    # Releases with HMP have no transformer engine.
    pytest.mark.usefixtures("needs_autocast"),
    pytest.mark.skipif(not hasattr(torch, "float8_e5m2"), reason="Requires: torch 2.1 for fp8"),
]


def _classifier() -> Classifier:
    """Return a classifier with one layer whose sizes fit fp8."""
    module = Classifier()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module.net.insert(2, torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()))
    return module


def _train(trainer: MakeTrainer, plugin: HPUPrecisionPlugin, *, convert: bool, recipe: Any = None) -> Classifier:
    module = _classifier()
    if convert:
        plugin.convert_modules(module, replace_layers=True, recipe=recipe)
    trainer(plugin).fit(module, make_loader())
    return module


def test_fp8_trains_like_bf16(trainer: MakeTrainer) -> None:
    """The losses are close, and not equal."""
    fp8 = _train(trainer, HPUPrecisionPlugin("fp8"), convert=True)
    bf16 = _train(trainer, HPUPrecisionPlugin("bf16-mixed"), convert=False)

    assert to_floats(fp8.losses) == pytest.approx(to_floats(bf16.losses), abs=0.1)
    assert to_floats(fp8.losses) != to_floats(bf16.losses)


def test_training_resumes_from_a_checkpoint(trainer: MakeTrainer, tmp_path: Path) -> None:
    """The checkpoint contains the engine's scales."""
    plugin = HPUPrecisionPlugin("fp8")
    run = trainer(plugin, max_epochs=1)
    module = _classifier()
    plugin.convert_modules(module, replace_layers=True)
    run.fit(module, make_loader())
    run.save_checkpoint(tmp_path / "last.ckpt")

    plugin, module = HPUPrecisionPlugin("fp8"), _classifier()
    plugin.convert_modules(module, replace_layers=True)
    trainer(plugin).fit(module, make_loader(), ckpt_path=tmp_path / "last.ckpt")

    assert to_floats(module.losses)[-1] < 0.5


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1 for convert_module")
def test_unconverted_module_trains_in_bf16_with_a_warning(trainer: MakeTrainer) -> None:
    with pytest.warns(UserWarning, match="precision='fp8' applies only to layers of Intel's transformer engine"):
        module = _train(trainer, HPUPrecisionPlugin("fp8"), convert=False)

    assert module.dtypes["fit"] == torch.bfloat16


def test_fabric_computes_in_fp8() -> None:
    layer = torch.nn.Linear(16, 16)
    data = torch.linspace(0.1, 0.9, 32).reshape(2, 16)
    plugin = FabricHPUPrecision("fp8")
    converted = plugin.convert_modules(layer, replace_layers=True).to("hpu")

    with plugin.forward_context():
        fp8 = converted(data.to("hpu")).float()
    with FabricHPUPrecision("bf16-mixed").forward_context():
        bf16 = converted(data.to("hpu")).float()

    assert not torch.equal(fp8, bf16)
    assert torch.allclose(fp8, bf16, atol=0.2)
