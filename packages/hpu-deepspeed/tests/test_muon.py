"""Training with DeepSpeed's Muon on a simulated device."""

import importlib
import os
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_deepspeed import HPUDeepSpeedStrategy, _deepspeed, _muon

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

pytestmark = pytest.mark.skipif(
    Version(_deepspeed.version()).release < (0, 17), reason="Requires: DeepSpeed 0.17, which has Muon"
)
_CONFIG = {
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "optimizer": {"type": "Muon", "params": {"lr": 0.01}},
}


class _MuonClassifier(Classifier):
    """Classifier that leaves the optimizer to DeepSpeed's configuration."""

    def configure_optimizers(self) -> Any:
        """Mark the matrices, which Muon trains."""
        for parameter in self.parameters():
            parameter.use_muon = parameter.ndim > 1


def _fit() -> tuple[bool, set[str]]:
    before = {name for name in os.environ if name.startswith("PT_HPU_")}
    run, module = trainer(HPUDeepSpeedStrategy(config=_CONFIG), max_epochs=1, precision="bf16-mixed"), _MuonClassifier()
    start = [parameter.detach().clone() for parameter in module.parameters()]
    run.fit(module, loader(run.global_rank, 2, 2))
    changed = any(
        not torch.equal(old, new.detach().cpu().float()) for old, new in zip(start, module.parameters(), strict=True)
    )
    return changed, {name for name in os.environ if name.startswith("PT_HPU_")} - before


def test_muon_trains_and_leaves_no_variable_of_the_bridge(on_ranks: OnRanks) -> None:
    """Its functions are compiled for the bridge's backend, because inductor has none for hpu."""
    assert on_ranks(_fit) == [(True, set())] * 2


def _find_compiled_functions() -> set[str]:
    _deepspeed.load()
    muon = importlib.import_module(_muon._MODULE)
    functions = {name: getattr(value, "_torchdynamo_orig_callable", None) for name, value in vars(muon).items()}
    return {
        name for name, function in functions.items() if function is not None and function.__module__ == muon.__name__
    }


def test_deepspeed_compiles_the_functions_where_they_are_looked_for(on_ranks: OnRanks) -> None:
    """A canary: where DeepSpeed renames the module, or torch the attribute, nothing would be replaced."""
    assert all("muon_update" in names for names in on_ranks(_find_compiled_functions))
