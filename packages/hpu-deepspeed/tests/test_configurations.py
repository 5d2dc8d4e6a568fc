"""Tests of configurations: those in the documentation of lightning-habana, and rejected ones."""

import copy
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.version import Version
from torch.utils.data import DataLoader

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy, _config
from hpu_deepspeed._lightning import DeepSpeedPrecision
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import BUCKET_SIZE, SUPPORTS_HALF, Classifier, loader, trainer

BATCHES = 4

_CONFIG = {
    "train_batch_size": 32,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "train_micro_batch_size_per_gpu": 8,
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": 0.02,
            "warmup_max_lr": 0.05,
            "warmup_num_steps": 4,
            "total_num_steps": 8,
            "warmup_type": "linear",
        },
    },
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 2},
}
_ADAM = {"type": "Adam", "params": {"lr": 0.01}}


class NoOptimizerClassifier(Classifier):
    """Classifier that leaves the optimizer to the configuration."""

    def configure_optimizers(self) -> Any:
        return None


class SchedulerClassifier(Classifier):
    """Classifier with a scheduler."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)]


class ManualClassifier(Classifier):
    """Classifier with manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        self.optimizers().step()
        self.optimizers().zero_grad()
        return loss


class ActivationCheckpointingClassifier(Classifier):
    """Classifier with activation checkpointing in its second half."""

    def __init__(self) -> None:
        super().__init__()
        self.first, *rest = self.net.children()
        self.rest = torch.nn.Sequential(*rest)
        self.net = torch.nn.Identity()

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint

        hidden = self.first(batch[0].to(next(self.first.parameters()).dtype))
        loss = torch.nn.functional.cross_entropy(checkpoint(self.rest, hidden).float(), batch[1])
        self.losses.append(self.trainer.strategy.reduce(loss.detach().clone()))
        return loss


def _train(module: Classifier, strategy: Any, **options: Any) -> "Result":
    """Train and return the losses, stage, dtype of the weights, optimizer, learning rate and scheduler."""
    zero = {} if isinstance(strategy, str) else strategy.config.get("zero_optimization", {})
    # Only to save memory; the documentation does not set it.
    zero["reduce_bucket_size"] = BUCKET_SIZE
    run = trainer(strategy, **options)
    run.fit(module, loader(run.global_rank, 2, BATCHES))
    engine = run.strategy.deepspeed_engine
    return {
        "losses": to_floats(module.losses),
        "stage": engine.zero_optimization_stage(),
        "dtype": str(next(module.parameters()).dtype),
        "optimizer": type(engine.basic_optimizer).__name__,
        "rate": run.optimizers[0].param_groups[0]["lr"],
        "scheduler": type(run.lr_scheduler_configs[0].scheduler).__name__ if run.lr_scheduler_configs else None,
    }


def _bf16() -> dict[str, Any]:
    return {"plugins": [DeepSpeedPrecision(precision="bf16-mixed")]}


_SIZES = {"accumulate_grad_batches": 2, "limit_train_batches": 16, "fast_dev_run": 8}
# Lightning 2.0 has no "bf16-true".
_TRUE = "bf16-mixed" if frameworks.current().version < Version("2.1.dev0") else "bf16-true"


def _write_config(folder: str) -> str:
    """Write the configuration to a file of this rank, and return its path."""
    file = Path(folder, f"config-{os.environ['LOCAL_RANK']}.json")
    file.write_text(json.dumps(_CONFIG))
    return str(file)


def _train_with_cards() -> "Result":
    cards = [torch.device("hpu")] * HPUAccelerator.auto_device_count()
    return _train(Classifier(), HPUDeepSpeedStrategy(config=_CONFIG, parallel_devices=cards), **_bf16(), **_SIZES)


def _train_with_checkpointing(*, partition: bool) -> "Result":
    strategy = HPUDeepSpeedStrategy(
        zero_optimization=True,
        stage=3,
        offload_optimizer=True,
        cpu_checkpointing=True,
        partition_activations=partition,
    )
    return _train(ActivationCheckpointingClassifier(), strategy, **_bf16())


def _train_with_optimizers(module: Classifier, device: str) -> "Result":
    """Train with an optimizer and a scheduler in the configuration; return the warnings as well."""
    zero = {"stage": 2, "offload_optimizer": {"device": device}}
    both = {"optimizer": _ADAM, "scheduler": _CONFIG["scheduler"], "zero_optimization": zero}
    strategy = HPUDeepSpeedStrategy(config={**both, "zero_allow_untested_optimizer": True})
    with mock.patch("hpu_deepspeed.strategy.rank_zero_warn") as warn:
        found = _train(module, strategy)
    return {**found, "warnings": [call.args[0] for call in warn.call_args_list]}


# A training for each code block of the documentation, by its name, and others; called with a folder.
_BLOCKS: "dict[str, Callable[[str], Result]]" = {
    "ZeRO-1": lambda _: _train(Classifier(), HPUDeepSpeedStrategy(zero_optimization=True, stage=1), **_bf16()),
    "ZeRO-2": lambda _: _train(Classifier(), HPUDeepSpeedStrategy(zero_optimization=True, stage=2), **_bf16()),
    "ZeRO-3": lambda _: _train(Classifier(), HPUDeepSpeedStrategy(zero_optimization=True, stage=3), **_bf16()),
    "ZeRO-Offload": lambda _: _train(
        Classifier(), HPUDeepSpeedStrategy(zero_optimization=True, stage=2, offload_optimizer=True), **_bf16()
    ),
    "BF16Optimizer": lambda _: _train_with_cards(),
    "config file": lambda folder: _train(
        Classifier(), HPUDeepSpeedStrategy(config=_write_config(folder)), **_bf16(), **_SIZES
    ),
    "cpu_checkpointing": lambda _: _train_with_checkpointing(partition=False),
    "partition_activations": lambda _: _train_with_checkpointing(partition=True),
    "strategy name": lambda _: _train(Classifier(), "hpu_deepspeed_stage_3_offload", precision="bf16-mixed"),
    "Lightning's name": lambda _: _train(Classifier(), "deepspeed_stage_1", precision=_TRUE),
    "float16": lambda _: _train(
        Classifier(), HPUDeepSpeedStrategy(stage=2, initial_scale_power=8), precision="16-mixed"
    ),
    "manual optimization": lambda _: _train(ManualClassifier(), HPUDeepSpeedStrategy(stage=2)),
    "config's": lambda _: _train_with_optimizers(NoOptimizerClassifier(), "none"),
    "module's": lambda _: _train_with_optimizers(SchedulerClassifier(), "cpu"),
}

Result = dict[str, Any]
TrainBlock = Callable[[str], Result]


def _train_block(block: str, folder: str) -> Result:
    return _BLOCKS[block](folder)


@pytest.fixture(scope="module")
def train_block(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> TrainBlock:
    """Return a function that trains as a block does, once, and returns the result."""
    folder = str(tmp_path_factory.mktemp("configs"))

    @functools.cache
    def train_block(block: str) -> Result:
        first, _ = on_ranks(_train_block, block, folder)
        return dict(first)

    return train_block


# Stage and data type of the weights, and the block with the same losses, with the difference that may be.
_EXPECTED: dict[str, tuple[int, str, str, float]] = {
    "ZeRO-1": (1, "bfloat16", "", 0),
    "ZeRO-2": (2, "bfloat16", "ZeRO-1", 5e-3),
    "ZeRO-3": (3, "bfloat16", "ZeRO-1", 5e-3),
    "ZeRO-Offload": (2, "bfloat16", "ZeRO-1", 5e-3),
    "BF16Optimizer": (2, "bfloat16", "", 0),
    "config file": (2, "bfloat16", "BF16Optimizer", 0),
    "cpu_checkpointing": (3, "bfloat16", "ZeRO-3", 5e-3),
    "partition_activations": (3, "bfloat16", "ZeRO-3", 5e-3),
    "strategy name": (3, "bfloat16", "ZeRO-1", 5e-3),
    "Lightning's name": (1, "bfloat16", "", 0),
    "manual optimization": (2, "float32", "ZeRO-1", 0.01),
    # DeepSpeed skips no step, because the initial loss scale is small.
    **({"float16": (2, "float16", "ZeRO-1", 0.01)} if SUPPORTS_HALF else {}),
}


@pytest.mark.parametrize("block", _EXPECTED)
def test_block_trains(block: str, train_block: TrainBlock) -> None:
    """The stage and the data type are the requested ones, and the losses are finite, change, and equal another's."""
    found = train_block(block)
    stage, dtype, same, difference = _EXPECTED[block]

    assert (found["stage"], found["dtype"]) == (stage, f"torch.{dtype}")
    assert all(0 < loss < 5 for loss in found["losses"])
    assert len(set(found["losses"])) > 1
    assert found["losses"] == pytest.approx(train_block(same or block)["losses"], abs=difference)


def test_optimizer_of_the_configuration_is_used_if_the_module_has_none(train_block: TrainBlock) -> None:
    """It is DeepSpeed's fused Adam, which uses the bridge's operator."""
    found = train_block("config's")

    assert (found["optimizer"], found["scheduler"], found["warnings"]) == ("FusedAdam", "WarmupDecayLR", [])


def test_modules_optimizer_and_scheduler_take_precedence(train_block: TrainBlock) -> None:
    """A warning is emitted for each."""
    found = train_block("module's")

    assert (found["optimizer"], found["scheduler"]) == ("SGD", "StepLR")
    assert ["optimizer" in text or "scheduler" in text for text in found["warnings"]] == [True, True]


def _fit(strategy: Any, module: Classifier | None = None, **options: Any) -> None:
    trainer(strategy, devices=1, **options).fit(module or Classifier(), loader(0, 1, BATCHES))


_NVME: dict[str, Any] = {"stage": 3, "offload_optimizer": True, "offload_optimizer_device": "nvme"}
_precisions = frameworks.current().pytorch("plugins.precision")
_MixedPrecision = getattr(_precisions, "MixedPrecision", None) or _precisions.MixedPrecisionPlugin

# Functions that raise, called with the path of a file, and what their errors have.
_ERRORS: dict[str, tuple[Callable[[str], Any], str]] = {
    "zero option": (
        lambda _: _fit(HPUDeepSpeedStrategy(config={"zero_optimization": {"overlap_com": True}})),
        "validation error for DeepSpeedZeroConfig\noverlap_com",
    ),
    "nvme file": (lambda file: _fit(HPUDeepSpeedStrategy(**_NVME, nvme_path=file)), "Not a directory"),
    "no optimizer": (
        lambda _: _fit(HPUDeepSpeedStrategy(), NoOptimizerClassifier()),
        "`configure_optimizers` returned no optimizer and the DeepSpeed config has none",
    ),
    "plugin": (
        lambda _: _fit(HPUDeepSpeedStrategy(), plugins=[_MixedPrecision("bf16-mixed", "hpu")]),
        "needs a precision plugin for DeepSpeed, got MixedPrecision",
    ),
    # hpu-deepspeed's own check on Lightning 2.0 alone.
    "by value": (
        lambda _: _fit(HPUDeepSpeedStrategy(), gradient_clip_val=0.5, gradient_clip_algorithm="value"),
        "DeepSpeed does not support clipping gradients by value",
    ),
}


def _error(case: str, file: str) -> str:
    """Return the error of a case."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the test compares the text.
        _ERRORS[case][0](file)
    return str(caught.value)


@pytest.mark.parametrize("case", _ERRORS)
def test_invalid_input_is_rejected_before_training(case: str, on_ranks: OnRanks, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.touch()

    assert _ERRORS[case][1] in on_ranks(_error, case, str(file), count=1)[0]


_AUTO_BATCHES = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}


@pytest.mark.parametrize(
    ("config", "left", "removed"),
    [
        ({**_AUTO_BATCHES, "gradient_clipping": 1.0}, {"gradient_clipping": 1.0}, [*_AUTO_BATCHES]),
        (
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}},
            {"zero_optimization": {"stage": 2}},
            ["zero_optimization.reduce_bucket_size"],
        ),
        ({"aio": {"block_size": "auto"}, "amp": {}}, {"amp": {}}, ["aio.block_size"]),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": 1e-8}}}, {}, ["optimizer.params.lr"]),
        ({"fp16": {"enabled": "auto", "loss_scale": 0}}, {}, ["fp16.enabled"]),
    ],
    ids=["batches", "nested", "empty section", "optimizer", "fp16"],
)
def test_auto_options_are_left_out(config: dict[str, Any], left: dict[str, Any], removed: list[str]) -> None:
    """What Hugging Face's Trainer would fill in, Lightning or DeepSpeed sets."""
    config = copy.deepcopy(config)

    assert _config.remove_auto(config) == removed
    assert config == left


# torch's types want a Dataset.
_ROWS: Any = range(8)


@pytest.mark.parametrize(
    ("loader_of_training", "size"),
    [
        (DataLoader(_ROWS, batch_size=4), 4),
        (DataLoader(_ROWS, batch_size=None), 1),
        (DataLoader(_ROWS, batch_sampler=[[0, 1], [2]]), 1),
        ([DataLoader(_ROWS, batch_size=4)], 1),
    ],
    ids=["batch size", "None", "own batches", "several"],
)
def test_logged_batch_size_is_that_of_the_loader_or_1(loader_of_training: Any, size: int) -> None:
    source = mock.Mock(**{"is_defined.return_value": True, "dataloader.return_value": loader_of_training})
    strategy = mock.Mock(**{"lightning_module.trainer.fit_loop._data_source": source})

    assert HPUDeepSpeedStrategy._auto_select_batch_size(strategy) == size


@pytest.mark.parametrize("timer", [{}, {"synchronized": True}])
def test_timer_waits_for_the_device_if_asked_to(timer: dict[str, Any]) -> None:
    config: dict[str, Any] = {"timers": {"throughput": {**timer}}} if timer else {}
    _config.fill_defaults(config)

    # Older DeepSpeed has no such option.
    made = pytest.importorskip("deepspeed.utils.config").get_timers_config(config)
    assert made.synchronized is bool(timer)
