"""Training in fp8 with ZeRO on two simulated devices; the helper functions run on both ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hpu_core import SingleHPUStrategy, bridge
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

pytestmark = pytest.mark.skipif(not hasattr(torch, "float8_e5m2"), reason="Requires: torch 2.1 for fp8")

BATCHES = 6


class _Block(torch.nn.Sequential):
    """Two linear layers, recomputed in the backward pass on request."""

    def __init__(self, *, recompute: bool) -> None:
        super().__init__(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32))
        self.recompute = recompute

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of shape (batch, 32)."""
        run: Any = super().forward
        result: torch.Tensor = checkpoint(run, values, use_reentrant=False) if self.recompute else run(values)
        return result


def _fit(  # noqa: PLR0913 - what the tests vary.
    strategy: Any,
    folder: Path | None = None,
    batches: int = BATCHES,
    *,
    precision: str = "fp8",
    recompute: bool = False,
    ckpt_path: Path | None = None,
) -> tuple[list[float], list[bytes]]:
    """Train; return the losses, and scales and amax histories of the layers."""
    devices = 1 if isinstance(strategy, SingleHPUStrategy) else 2
    run = trainer(
        strategy,
        devices=devices,
        precision=precision,
        max_epochs=-1,
        max_steps=batches,
        limit_train_batches=1,
    )
    module = Classifier()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module.net = torch.nn.Sequential(_Block(recompute=recompute), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    engine = bridge.transformer_engine()
    if precision == "fp8":
        recipe = engine.recipe.DelayedScaling(fp8_format=engine.recipe.Format.HYBRID, amax_history_len=3)
        run.precision_plugin.convert_modules(module, replace_layers=True, recipe=recipe)
    run.fit(module, loader(run.global_rank if devices == 2 else 0, devices, 1), ckpt_path=ckpt_path)
    if folder is not None:
        run.save_checkpoint(folder)
    layers = [layer for layer in module.modules() if isinstance(layer, engine.Linear)]
    return to_floats(module.losses), [bytes(layer.get_extra_state().tolist()) for layer in layers]


def _train_all() -> dict[str, Any]:
    return {
        "one card": _fit(SingleHPUStrategy()),
        **{f"stage {stage}": _fit(HPUDeepSpeedStrategy(stage=stage)) for stage in (1, 2, 3)},
        "recomputed": _fit(HPUDeepSpeedStrategy(stage=3), recompute=True),
        "bf16": _fit(HPUDeepSpeedStrategy(stage=2), precision="bf16-mixed"),
    }


@pytest.fixture(scope="module")
def runs(on_ranks: OnRanks) -> list[dict[str, Any]]:
    """Losses and states by stage, by rank."""
    return on_ranks(_train_all)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_sharded_training_is_like_on_one_card(stage: int, runs: list[dict[str, Any]]) -> None:
    """Two layers compute in fp8 with the same scales on all ranks. The losses are not those in bf16."""
    for rank in runs:
        losses, states = rank[f"stage {stage}"]
        assert losses == pytest.approx(rank["one card"][0], abs=0.02)
        assert losses != rank["bf16"][0]
        assert len(states) == 2
        assert states == runs[0][f"stage {stage}"][1]


def test_recomputation_changes_nothing(runs: list[dict[str, Any]]) -> None:
    """A recomputed layer computes in fp8 with the scale of the forward pass, and measures no amax."""
    for rank in runs:
        assert rank["recomputed"] == rank["stage 3"]


def _resume(folder: Path, stage: int) -> tuple[Any, Any]:
    whole = _fit(HPUDeepSpeedStrategy(stage=stage))
    _fit(HPUDeepSpeedStrategy(stage=stage), folder, batches=3)
    return whole, _fit(HPUDeepSpeedStrategy(stage=stage), ckpt_path=folder)


@pytest.mark.parametrize("stage", [2, 3])
def test_resumed_training_is_the_uninterrupted_one(stage: int, on_ranks: OnRanks, tmp_path: Path) -> None:
    """Checkpoints have the scales."""
    for (losses, states), (resumed, resumed_states) in on_ranks(_resume, tmp_path / "saved", stage):
        assert resumed == losses[3:]
        assert resumed_states == states
