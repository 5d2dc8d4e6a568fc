"""Training in fp8 by the simulated transformer engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin

from .modules import Classifier, loader, losses

_lightning = frameworks.current()

MakeTrainer = Callable[..., Any]

pytestmark = [
    # HMP's releases come before the transformer engine.
    pytest.mark.usefixtures("needs_autocast"),
    pytest.mark.skipif(not hasattr(torch, "float8_e5m2"), reason="Requires: torch 2.1 for fp8"),
]


def _trained(trainer: MakeTrainer, plugin: HPUPrecisionPlugin, *, convert: bool, recipe: Any = None) -> Classifier:
    module = Classifier()
    if convert:
        plugin.convert_modules(module, replace_layers=True, recipe=recipe)
    trainer(plugin).fit(module, loader())
    return module


def test_fp8_trains_like_bf16(trainer: MakeTrainer) -> None:
    """The losses are those of bf16, to the digits that fp8 has, and not the very same."""
    float8 = _trained(trainer, HPUPrecisionPlugin("fp8"), convert=True)
    bf16 = _trained(trainer, HPUPrecisionPlugin("bf16-mixed"), convert=False)

    assert losses(float8) == pytest.approx(losses(bf16), abs=0.1)
    assert losses(float8) != losses(bf16)


def test_the_rest_runs_by_the_op_lists(trainer: MakeTrainer) -> None:
    """What is no layer of the engine is bf16 or float32 by its list."""
    module = _trained(trainer, HPUPrecisionPlugin("fp8"), convert=True)

    assert module.types["fit"] == torch.bfloat16
    assert module.losses[0].dtype == torch.float32


def test_the_recipe_reaches_the_engine(trainer: MakeTrainer) -> None:
    """Another recipe rounds otherwise."""
    recipe = bridge.transformer_engine().recipe
    hybrid = recipe.DelayedScaling(fp8_format=recipe.Format.HYBRID)
    runs = [
        losses(_trained(trainer, HPUPrecisionPlugin("fp8"), convert=True, recipe=chosen)) for chosen in (None, hybrid)
    ]

    assert runs[0] != runs[1]


def test_a_checkpoint_resumes(trainer: MakeTrainer, tmp_path: Path) -> None:
    """The engine's scales are in the checkpoint, and a resumed training goes on."""
    plugin = HPUPrecisionPlugin("fp8")
    run = trainer(plugin, max_epochs=1)
    module = Classifier()
    plugin.convert_modules(module, replace_layers=True)
    run.fit(module, loader())
    run.save_checkpoint(tmp_path / "last.ckpt")

    plugin, module = HPUPrecisionPlugin("fp8"), Classifier()
    plugin.convert_modules(module, replace_layers=True)
    trainer(plugin).fit(module, loader(), ckpt_path=tmp_path / "last.ckpt")

    assert losses(module)[-1] < 0.5


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which asks the plugin before")
def test_a_training_without_layers_of_the_engine_is_warned_of(trainer: MakeTrainer) -> None:
    """A module that was not converted trains in bf16, and the user is told."""
    with pytest.warns(UserWarning, match="precision='fp8' computes only the layers of Intel's transformer engine"):
        module = _trained(trainer, HPUPrecisionPlugin("fp8"), convert=False)

    assert module.types["fit"] == torch.bfloat16


def test_fabric_computes_in_fp8() -> None:
    """Fabric's plugin enters the engine's context, too."""
    layer = torch.nn.Linear(16, 16)
    data = torch.linspace(0.1, 0.9, 32).reshape(2, 16)
    plugin = FabricHPUPrecision("fp8")
    converted = plugin.convert_modules(layer, replace_layers=True).to("hpu")

    with plugin.forward_context():
        float8 = converted(data.to("hpu")).float()
    with FabricHPUPrecision("bf16-mixed").forward_context():
        bf16 = converted(data.to("hpu")).float()

    assert not torch.equal(float8, bf16)
    assert torch.allclose(float8, bf16, atol=0.2)
