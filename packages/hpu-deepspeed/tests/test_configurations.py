"""Tests of configurations: those in the documentation of lightning-habana, and rejected ones."""

import copy
import functools
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.version import Version
from torch.utils.data import DataLoader

from hpu_core import HPUAccelerator, frameworks
from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin, HPUDeepSpeedStrategy, _config
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


class TwoOptimizersClassifier(Classifier):
    """Classifier with two optimizers."""

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD(layer.parameters(), lr=0.1) for layer in self.net.children() if list(layer.parameters())
        ]


class FailingClassifier(Classifier):
    """Classifier whose `configure_optimizers` raises."""

    def configure_optimizers(self) -> Any:
        raise RuntimeError("multiple optimizers are configured elsewhere")


class ManualTwoOptimizersClassifier(TwoOptimizersClassifier):
    """Classifier with two optimizers and manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


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


def _train_with_variable(folder: str) -> "Result":
    with mock.patch.dict(os.environ, PL_DEEPSPEED_CONFIG_PATH=_write_config(folder)):
        return _train(Classifier(), HPUDeepSpeedStrategy(), **_bf16(), **_SIZES)


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
    "BF16": lambda _: _train(Classifier(), HPUDeepSpeedStrategy(), **_bf16()),
    "our plugin": lambda _: _train(
        Classifier(), HPUDeepSpeedStrategy(), plugins=[HPUDeepSpeedPrecisionPlugin(precision="bf16-mixed")]
    ),
    "BF16Optimizer": lambda _: _train_with_cards(),
    "config file": lambda folder: _train(
        Classifier(), HPUDeepSpeedStrategy(config=_write_config(folder)), **_bf16(), **_SIZES
    ),
    "environment variable": _train_with_variable,
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


_STAGES = {
    "ZeRO-1": 1,
    "ZeRO-2": 2,
    "ZeRO-3": 3,
    "ZeRO-Offload": 2,
    "BF16": 2,
    "our plugin": 2,
    "BF16Optimizer": 2,
    "config file": 2,
    "environment variable": 2,
    "cpu_checkpointing": 3,
    "partition_activations": 3,
    "strategy name": 3,
    "Lightning's name": 1,
}


@pytest.mark.parametrize(("block", "stage"), _STAGES.items())
def test_documented_block_trains(block: str, stage: int, train_block: TrainBlock) -> None:
    """The stage is the requested one, the weights are in bfloat16, and the losses are finite and change."""
    found = train_block(block)

    assert (found["stage"], found["dtype"]) == (stage, "torch.bfloat16")
    assert all(0 < loss < 5 for loss in found["losses"])
    assert len(set(found["losses"])) > 1


@pytest.mark.parametrize("block", ["ZeRO-2", "ZeRO-3", "ZeRO-Offload", "BF16", "our plugin", "strategy name"])
def test_stages_have_the_same_losses(block: str, train_block: TrainBlock) -> None:
    assert train_block(block)["losses"] == pytest.approx(train_block("ZeRO-1")["losses"], abs=5e-3)


_OTHER_DTYPES = {"manual optimization": "torch.float32", **({"float16": "torch.float16"} if SUPPORTS_HALF else {})}


@pytest.mark.parametrize(("block", "dtype"), _OTHER_DTYPES.items())
def test_float16_and_manual_optimization_have_the_same_losses(block: str, dtype: str, train_block: TrainBlock) -> None:
    """DeepSpeed skips no step, because the initial loss scale is small."""
    assert train_block(block)["dtype"] == dtype
    assert train_block(block)["losses"] == pytest.approx(train_block("ZeRO-1")["losses"], abs=0.01)


@pytest.mark.parametrize("block", ["cpu_checkpointing", "partition_activations"])
def test_activation_checkpointing_does_not_change_the_losses(block: str, train_block: TrainBlock) -> None:
    assert train_block(block)["losses"] == pytest.approx(train_block("ZeRO-3")["losses"], abs=5e-3)


@pytest.mark.parametrize("block", ["config file", "environment variable"])
def test_config_file_equals_dict(block: str, train_block: TrainBlock) -> None:
    """The file may be an argument or be named by PL_DEEPSPEED_CONFIG_PATH."""
    assert train_block(block) == train_block("BF16Optimizer")


def test_scheduler_of_the_configuration_is_used(train_block: TrainBlock) -> None:
    """Eight batches are four steps, after which the learning rate is at the end of the warm-up."""
    found = train_block("BF16Optimizer")

    assert found["scheduler"] == "WarmupDecayLR"
    assert 0.02 < found["rate"] <= 0.05


def test_optimizer_of_the_configuration_is_used_if_the_module_has_none(train_block: TrainBlock) -> None:
    """It is DeepSpeed's fused Adam, which uses the bridge's operator."""
    found = train_block("config's")

    assert (found["optimizer"], found["scheduler"], found["warnings"]) == ("FusedAdam", "WarmupDecayLR", [])


def test_modules_optimizer_and_scheduler_take_precedence(train_block: TrainBlock) -> None:
    """A warning is emitted for each."""
    found = train_block("module's")

    assert (found["optimizer"], found["scheduler"]) == ("SGD", "StepLR")
    assert ["optimizer" in text or "scheduler" in text for text in found["warnings"]] == [True, True]


def _error(function: Callable[[], Any]) -> str:
    """Call a function that should raise and return its error."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test compares type and text.
        return f"{type(error).__name__}: {error}"
    return "no error"


def _fit(strategy: Any, module: Classifier | None = None, **options: Any) -> None:
    run = trainer(strategy, **options)
    run.fit(module or Classifier(), loader(run.global_rank, run.world_size, BATCHES))


# Cases in which several ranks train, by name. After an error, rank 0 of several waits until the others know of it.
_ON_RANKS = {"batch"}


def _errors(folder: str, ranks: int) -> dict[str, str]:
    """Return the errors of invalid arguments and configurations, of one rank or of several."""
    make: Any = HPUDeepSpeedStrategy
    fit = functools.partial(_fit, devices=ranks)
    nvme = {"stage": 3, "offload_optimizer": True, "offload_optimizer_device": "nvme"}
    file = Path(folder, "a file")
    file.touch()
    truncated, array = Path(folder, "truncated.json"), Path(folder, "array.json")
    truncated.write_text('{"zero_optimization": ')
    array.write_text("[]")
    config: dict[str, Any] = {"zero_optimization": {"stage": 2}}
    adam = {"optimizer": _ADAM, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    plugins = frameworks.current().pytorch("plugins.precision")
    precision = getattr(plugins, "MixedPrecision", None) or plugins.MixedPrecisionPlugin

    def without_compiler() -> None:
        with mock.patch.dict(os.environ, PATH=folder):
            fit(make(config=adam), NoOptimizerClassifier())

    def with_another_lightning() -> None:
        module = frameworks.current().pytorch("core.optimizer").__name__
        with mock.patch(f"{module}._validate_multiple_optimizers_support", side_effect=RuntimeError("too many")):
            fit(make(), TwoOptimizersClassifier())

    cases: dict[str, Callable[[], Any]] = {
        "stage": lambda: make(stage=4),
        "device": lambda: make(offload_optimizer=True, offload_optimizer_device="disk"),
        "parameters": lambda: make(stage=2, offload_parameters=True),
        "zero option": lambda: make(config={"zero_optimization": {"stage": 2, "overlap_com": True}}),
        "missing file": lambda: make(config="nowhere.json"),
        "no JSON": lambda: make(config=str(truncated)),
        "no dict": lambda: make(config=[config]),
        "no dict in a file": lambda: make(config=str(array)),
        "offload": lambda: make(config={"zero_optimization": {"stage": 3, "offload_optimizer": True}}),
        "backend": lambda: make(process_group_backend="nccl"),
        "timeout": lambda: make(timeout=30),
        "batch": lambda: fit(make(config={**config, "train_batch_size": 7})),
        "clipping": lambda: fit(make(config={**config, "gradient_clipping": 1.0}), gradient_clip_val=0.5),
        "by value": lambda: fit(make(), gradient_clip_val=0.5, gradient_clip_algorithm="value"),
        "optimizers": lambda: fit(make(), TwoOptimizersClassifier()),
        "optimizers, other text": with_another_lightning,
        "module's error": lambda: fit(make(), FailingClassifier()),
        "optimizers by hand": lambda: fit(make(), ManualTwoOptimizersClassifier()),
        "no optimizer": lambda: fit(make(), NoOptimizerClassifier()),
        "plugin": lambda: fit(make(), plugins=[precision("bf16-mixed", "hpu")]),
        "precision": lambda: HPUDeepSpeedPrecisionPlugin("bf8"),
        "nvme stage": lambda: make(**{**nvme, "stage": 2}, nvme_path=folder),
        "nvme missing": lambda: fit(make(**nvme, nvme_path="/no/such/disk")),
        "nvme file": lambda: fit(make(**nvme, nvme_path=str(file))),
        "compiler": without_compiler,
        "accelerator": lambda: fit(make(), accelerator="cpu"),
        "cards": lambda: _fit(make(), devices=3),
    }
    # Both ranks raise: after a RuntimeError, each would wait for news of the other.
    with mock.patch.dict(os.environ, HPU_FAILURE_DETECTION="0"):
        return {name: _error(case) for name, case in cases.items() if (ranks > 1) is (name in _ON_RANKS)}


@pytest.fixture(scope="module")
def errors(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Return the errors of each case, on all ranks."""
    folder = str(tmp_path_factory.mktemp("folder"))
    [alone] = on_ranks(_errors, folder, 1, count=1)
    return [{**alone, **found} for found in on_ranks(_errors, folder, 2)]


_EXPECTED = {
    "stage": "ValueError: `stage` must be 0, 1, 2 or 3, got 4",
    "device": "ValueError: `offload_optimizer_device` must be 'cpu' or 'nvme', got 'disk'",
    "parameters": "ValueError: `offload_parameters` needs `stage=3`",
    "zero option": "ValueError: `zero_optimization` in the DeepSpeed config has unknown options: 'overlap_com' (did",
    "missing file": "nowhere.json",
    "no JSON": "truncated.json' must be a JSON file: Expecting value",
    "no dict": "TypeError: `config` must be a dict or the path of a JSON file, got [",
    "no dict in a file": "array.json' must contain a JSON object, got []",
    "offload": "TypeError: `offload_optimizer` in the DeepSpeed config must be a dict, got True",
    "backend": "`process_group_backend` must be 'hccl' or a backend that is registered",
    "timeout": "TypeError: `timeout` must be a datetime.timedelta, got 30",
    "batch": "which is 8 x 1 x 2 = 16, got 7",
    "clipping": "ValueError: `gradient_clip_val=0.5` of the Trainer and `gradient_clipping: 1.0`",
    "by value": "DeepSpeed does not support clipping gradients by value",
    "optimizers": "MisconfigurationException: `configure_optimizers` must return a single optimizer with DeepSpeed",
    "optimizers, other text": "MisconfigurationException: `configure_optimizers` must return a single optimizer",
    "module's error": "RuntimeError: multiple optimizers are configured elsewhere",
    "optimizers by hand": "DeepSpeed currently only supports single optimizer",
    "no optimizer": "`configure_optimizers` returned no optimizer and the DeepSpeed config has none",
    "plugin": "needs a precision plugin for DeepSpeed, got MixedPrecision",
    "precision": "ValueError: `precision` must be '32-true', ",
    "nvme stage": "ValueError: `offload_optimizer_device='nvme'` needs `stage=3`, got stage 2",
    "nvme missing": "FileNotFoundError: `nvme_path` must be an existing directory on a local disk",
    "nvme file": "FileNotFoundError: `nvme_path` must be an existing directory on a local disk",
    "compiler": "RuntimeError: DeepSpeed compiles its Adam for the CPU on first use",
    "accelerator": "HPUDeepSpeedStrategy trains on HPUs only",
    "cards": "MisconfigurationException: `devices`",
}


@pytest.mark.parametrize(("case", "text"), _EXPECTED.items())
def test_invalid_input_is_rejected_before_training(case: str, text: str, errors: list[dict[str, str]]) -> None:
    """Every rank raises the same error."""
    assert all(text in found[case] for found in errors), [found[case] for found in errors]


def test_every_case_has_an_expected_error(errors: list[dict[str, str]]) -> None:
    assert set(errors[0]) == set(_EXPECTED)


def _unknown_options() -> list[str]:
    """Return the warnings about options that a newer DeepSpeed could have."""
    config = {"gradient_cliping": 1.0, "new_feature": {}, "aio": {"blok_size": 1024}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        HPUDeepSpeedStrategy(config=config)
    return [str(warning.message) for warning in caught if "unknown options" in str(warning.message)]


def test_unknown_options_warn_with_the_nearest_known_one(on_ranks: OnRanks) -> None:
    """They may be options of a newer DeepSpeed, so training continues; only rank 0 warns."""
    (top_level, aio), others = on_ranks(_unknown_options)

    assert "unknown options: 'gradient_cliping' (did you mean 'gradient_clipping'?), 'new_feature'" in top_level
    assert "`aio` in the DeepSpeed config has unknown options: 'blok_size' (did you mean 'block_size'?)" in aio
    assert others == []


# From "DeepSpeed Configuration JSON" in DeepSpeed's documentation.
_DOCUMENTED = """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler
    communication_data_type prescale_gradients gradient_predivide_factor sparse_gradients fp16 bf16 amp
    gradient_clipping zero_optimization aio ignore_unused_parameters steps_per_print wall_clock_breakdown dump_state
    autotuning flops_profiler activation_checkpointing sparse_attention data_efficiency curriculum_learning
    tensorboard wandb comet csv_monitor elasticity comms_logger compression_training checkpoint data_types
"""


def _unknown_documented_options() -> list[str]:
    from hpu_deepspeed import _config, _deepspeed

    _deepspeed.load()
    return sorted(set(_DOCUMENTED.split()) - _config.training_options())


def test_documented_options_are_known(on_ranks: OnRanks) -> None:
    """`ignore_unused_parameters` is an option of `zero_optimization`, not a top-level one."""
    assert on_ranks(_unknown_documented_options) == [["ignore_unused_parameters"]] * 2


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
        ({"optimizer": {"params": {"lr": "auto"}}}, {"optimizer": {"params": {"lr": "auto"}}}, []),
        ({"bf16": {"enabled": "auto"}}, {"bf16": {"enabled": "auto"}}, []),
    ],
    ids=["batches", "nested", "empty section", "optimizer", "enabled"],
)
def test_auto_options_are_left_out(config: dict[str, Any], left: dict[str, Any], removed: list[str]) -> None:
    """What Hugging Face's Trainer would fill in, Lightning or DeepSpeed sets."""
    config = copy.deepcopy(config)

    assert _config.remove_auto(config) == removed
    assert config == left


@pytest.mark.parametrize(("precision", "enabled"), [("16-mixed", (True, False)), ("bf16-true", (False, True))])
def test_auto_precision_is_that_of_the_trainer(precision: str, enabled: tuple[bool, bool]) -> None:
    config: dict[str, Any] = {"fp16": {"enabled": "auto", "loss_scale": 0}, "bf16": {"enabled": "auto"}}
    _config.resolve_precision(config, precision)

    assert (config["fp16"]["enabled"], config["bf16"]["enabled"]) == enabled


def test_auto_of_a_used_optimizer_is_named() -> None:
    config = {"optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": 1e-8}}, "scheduler": {"params": {}}}
    with pytest.raises(ValueError, match=r"'optimizer.params.lr' .* must have a value, got 'auto'.*Hugging Face's"):
        _config.validate_auto(config)


@pytest.mark.parametrize(("saved", "ranks"), [(2, 1), (2, 4), (1, 2)])
def test_optimizer_states_of_another_number_of_ranks_are_an_error(saved: int, ranks: int, tmp_path: Path) -> None:
    _write_optimizer_states(tmp_path, saved)
    with pytest.raises(ValueError, match=rf"of {saved} cards, and this training has {ranks}: .*ds_to_universal"):
        _config.validate_ranks(tmp_path, {}, ranks)


@pytest.mark.parametrize(
    ("saved", "config"),
    [(2, {}), (0, {}), (3, {"checkpoint": {"load_universal": True}})],
    ids=["equal", "0", "universal"],
)
def test_other_optimizer_states_are_accepted(saved: int, config: dict[str, Any], tmp_path: Path) -> None:
    _write_optimizer_states(tmp_path, saved)
    _config.validate_ranks(tmp_path, config, 2)


def _write_optimizer_states(folder: Path, ranks: int) -> None:
    (folder / "checkpoint").mkdir()
    for rank in range(ranks):
        (folder / "checkpoint" / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()


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
