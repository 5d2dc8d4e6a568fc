"""Training in fp8 with sharded weights on two simulated devices; the helper functions run on both ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import SingleHPUStrategy, bridge, frameworks
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_fsdp.precision import FabricHPUFSDPPrecision, HPUFSDPPrecision
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import ImageClassifier, make_loader, make_trainer

# torch's checkpoints use its own deprecated names.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\."),
    pytest.mark.skipif(not hasattr(torch, "float8_e5m2"), reason="Requires: torch 2.1 for fp8"),
]

_HAS_FSDP2 = Version(torch.__version__) >= Version("2.9.dev0")
_ModelCheckpoint = frameworks.current().pytorch("callbacks").ModelCheckpoint

STEPS = 4


class Block(torch.nn.Module):
    """Two linear layers beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the same shape."""
        result: torch.Tensor = values + self.down(torch.tanh(self.up(values)))
        return result


class Classifier(ImageClassifier):
    """Classifier with blocks; the last layer has 10 outputs, which do not fit fp8."""

    def __init__(self, *, shard: bool = False) -> None:
        super().__init__(optimizer="adamw")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 32), Block(), Block(), torch.nn.Linear(32, 10))
        self.shard = shard

    def configure_model(self) -> None:
        """Shard the blocks, once."""
        if not self.shard:
            return
        from torch.distributed.fsdp import fully_shard

        self.shard = False
        for part in (self.net[1], self.net[2], self.net):
            fully_shard(part, mesh=self.device_mesh["data_parallel"], reshard_after_forward=False)


def _fit(strategy: Any, steps: int = STEPS, folder: Path | None = None, **options: Any) -> dict[str, Any]:
    """Train in fp8; return losses, and scales and amax histories of the layers."""
    recipe = bridge.transformer_engine().recipe
    devices = 1 if isinstance(strategy, SingleHPUStrategy) else 2
    callbacks = [_ModelCheckpoint(folder, every_n_train_steps=2, filename="{step}", save_top_k=-1)] if folder else []
    trainer = make_trainer(
        strategy=strategy,
        devices=devices,
        precision="fp8",
        max_steps=steps,
        limit_train_batches=1,
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
    )
    module = Classifier(shard=isinstance(strategy, HPUModelParallelStrategy))
    layers = module.net
    trainer.precision_plugin.convert_modules(
        module,
        replace_layers=True,
        recipe=recipe.DelayedScaling(fp8_format=recipe.Format.HYBRID, amax_history_len=3, amax_compute_algo="max"),
    )
    # Lightning before 2.6 has no such argument, and loads everything.
    if options and frameworks.current().version >= Version("2.6.dev0"):
        options["weights_only"] = False
    rank = 0 if devices == 1 else trainer.global_rank
    trainer.fit(module, make_loader(rank, devices), **options)
    engine = bridge.transformer_engine().Linear
    states = [bytes(layer.get_extra_state().tolist()) for layer in layers.modules() if isinstance(layer, engine)]
    losses = trainer.strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    return {"losses": to_floats(list(losses)), "states": states, "precision": trainer.precision}


def _fsdp(**options: Any) -> HPUFSDPStrategy:
    return HPUFSDPStrategy(auto_wrap_policy={Block}, **options)


def _train_all() -> dict[str, Any]:
    runs = {
        "one card": _fit(SingleHPUStrategy()),
        "fsdp": _fit(_fsdp()),
        "recomputed": _fit(_fsdp(activation_checkpointing_policy={Block})),
    }
    if _HAS_FSDP2:
        runs["fsdp2"] = _fit(HPUModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1))
    return runs


@pytest.fixture(scope="module")
def runs(on_ranks: OnRanks) -> list[dict[str, Any]]:
    """Results of each strategy, by rank."""
    return on_ranks(_train_all, seconds=120)


@pytest.mark.parametrize("name", ["fsdp", "fsdp2"] if _HAS_FSDP2 else ["fsdp"])
def test_sharded_training_is_like_on_one_card(name: str, runs: list[dict[str, Any]]) -> None:
    """Five layers compute in fp8, and all losses are those of one card up to the rounding of reductions in bf16."""
    expected = runs[0]["one card"]["losses"]

    assert expected[-1] < expected[0] * 0.9
    for rank in runs:
        assert rank[name]["losses"] == pytest.approx(expected, abs=0.02)
        assert len(rank[name]["states"]) == 5
        assert rank[name]["precision"] == "fp8"


@pytest.mark.parametrize("name", ["fsdp", "fsdp2"] if _HAS_FSDP2 else ["fsdp"])
def test_ranks_have_equal_scales(name: str, runs: list[dict[str, Any]]) -> None:
    """Each rank has another part of the data; the amax of inputs and gradients is that of all parts."""
    assert runs[0][name]["states"] == runs[1][name]["states"]


def test_recomputation_changes_nothing(runs: list[dict[str, Any]]) -> None:
    """A recomputed layer computes in fp8 with the scale of the forward pass, and measures no amax."""
    for rank in runs:
        assert rank["recomputed"] == rank["fsdp"]


def _resume(folder: Path) -> dict[str, Any]:
    results = {}
    kinds: dict[str, Any] = {
        "full": lambda: _fsdp(state_dict_type="full"),
        "sharded": lambda: _fsdp(state_dict_type="sharded"),
    }
    if _HAS_FSDP2:
        kinds |= {
            f"fsdp2 {kind}": lambda sharded=sharded: HPUModelParallelStrategy(
                data_parallel_size=2, tensor_parallel_size=1, save_distributed_checkpoint=sharded
            )
            for kind, sharded in {"full": False, "sharded": True}.items()
        }
    for name, strategy in kinds.items():
        whole = _fit(strategy(), folder=folder / name)
        resumed = _fit(strategy(), ckpt_path=folder / name / "step=2.ckpt")
        results[name] = (whole["losses"][2:], resumed["losses"], whole["states"] == resumed["states"])
    return results


def test_resumed_training_is_the_uninterrupted_one(on_ranks: OnRanks, tmp_path: Path) -> None:
    """Checkpoints of all kinds have the scales."""
    for results in on_ranks(_resume, tmp_path, seconds=180):
        for name, (expected, losses, same_states) in results.items():
            assert losses == expected, name
            assert same_states, name


@pytest.mark.parametrize("kind", [HPUFSDPPrecision, FabricHPUFSDPPrecision])
def test_only_fp8_converts(kind: Any) -> None:
    with pytest.raises(ValueError, match="`convert_modules` needs precision='fp8', got a plugin with 'bf16-mixed'"):
        kind("bf16-mixed").convert_modules(torch.nn.Linear(16, 16), replace_layers=True)
