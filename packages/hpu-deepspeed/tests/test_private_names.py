"""Canary: private names of Lightning and DeepSpeed that hpu-deepspeed overrides or uses.

A renamed base method would turn an override into dead code. These tests fail instead.
"""

import importlib
import importlib.metadata
import inspect
from typing import Any

import pytest
from packaging.version import Version

from hpu_core import frameworks
from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy
from hpu_deepspeed._lightning import DeepSpeedStrategy, FabricDeepSpeedStrategy

from .conftest import OnRanks
from .modules import SUPPORTS_NVME

_lightning = frameworks.current()
_2_1_OR_NEWER = _lightning.version >= Version("2.1.dev0")
_BEFORE_2_2 = _lightning.version < Version("2.2.dev0")

_OF_BOTH = "_configure_launcher _format_config _init_deepspeed_distributed setup_environment"
_OF_THE_TRAINER = (
    "_init_optimizers _initialize_deepspeed_inference _initialize_deepspeed_train _setup_model_and_optimizer backward "
    "block_backward_sync init_deepspeed set_world_ranks setup_distributed teardown"
)
_OVERRIDES = [
    *((HPUDeepSpeedStrategy, DeepSpeedStrategy, name) for name in f"{_OF_BOTH} {_OF_THE_TRAINER}".split()),
    *(
        (FabricHPUDeepSpeedStrategy, FabricDeepSpeedStrategy, name)
        for name in f"{_OF_BOTH} _initialize_engine _set_world_ranks _setup_distributed".split()
    ),
]


@pytest.mark.parametrize(("strategy", "base", "name"), _OVERRIDES)
def test_override_matches_lightnings_method(strategy: type, base: type, name: str) -> None:
    """The base has the method, and the override accepts the same arguments."""
    theirs = [parameter.name for parameter in inspect.signature(getattr(base, name)).parameters.values()]

    inspect.signature(getattr(strategy, name)).bind(*theirs)


@pytest.mark.parametrize("base", [DeepSpeedStrategy, FabricDeepSpeedStrategy])
@pytest.mark.parametrize("name", ["config", "_config_initialized", "load_full_weights"])
def test_lightnings_init_sets_the_attribute(base: type[Any], name: str) -> None:
    assert name in base.__init__.__code__.co_names


@pytest.mark.parametrize(
    "path",
    [
        "core.optimizer:_MockOptimizer",
        "loops.fit_loop:_FitLoop._should_accumulate",
        "strategies.deepspeed:DeepSpeedStrategy.parallel_devices",
        "strategies.deepspeed:DeepSpeedStrategy.handles_gradient_accumulation",
        "strategies.deepspeed:DeepSpeedStrategy.zero_stage_3",
        pytest.param(
            "overrides.base:_LightningModuleWrapperBase",
            marks=pytest.mark.skipif(_2_1_OR_NEWER, reason="Lightning 2.0 only"),
        ),
        pytest.param(
            "strategies.deepspeed:DeepSpeedStrategy._init_config_if_needed",
            marks=pytest.mark.skipif(_BEFORE_2_2, reason="Requires: Lightning 2.2"),
        ),
    ],
)
def test_lightning_has_the_name(path: str) -> None:
    module, _, name = path.partition(":")
    value: Any = _lightning.pytorch(module)
    for part in name.split("."):
        value = getattr(value, part)


_SET_TO_NONE = ["set_to_none"] if Version(importlib.metadata.version("deepspeed")) >= Version("0.18") else []

# Names that hpu-deepspeed patches or calls, with their parameters; None for names that are not functions.
_DEEPSPEED = {
    "accelerator.hpu_accelerator:HPU_Accelerator.device_name": ["self", "device_index"],
    "accelerator.hpu_accelerator:HPU_Accelerator.get_op_builder": ["self", "class_name"],
    "accelerator.hpu_accelerator:HPU_Accelerator.set_device": ["self", "device_index"],
    "runtime.bf16_optimizer:BF16_Optimizer.clear_hp_grads": ["self"],
    # Called without arguments; 0.16.1 has none.
    "runtime.bf16_optimizer:BF16_Optimizer.clear_lp_grads": ["self", *_SET_TO_NONE],
    "runtime.engine:DeepSpeedEngine.empty_partition_cache": ["self"],
    "runtime.engine:DeepSpeedEngine.set_gradient_accumulation_boundary": ["self", "is_boundary"],
    "runtime.zero.config:DeepSpeedZeroConfig": None,
    "runtime.zero.parameter_offload:DeepSpeedZeRoOffload.destroy": ["self"],
    "runtime.zero.partition_parameters:InsertPostInitMethodToModuleSubClasses": None,
    "runtime.zero.partition_parameters:zero3_linear_wrap": ["input", "weight", "bias"],
}
_STAGE_3 = "runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
_SWAPPERS = "runtime.swap_tensor"
_DEEPSPEED_NVME = {
    "runtime.base_optimizer:DeepSpeedOptimizer": None,
    "runtime.engine:DeepSpeedEngine.zero_nvme_offload_optimizer": ["self"],
    f"{_STAGE_3}._rigid_state_dict": ["self"],
    f"{_STAGE_3}._rigid_load_state_dict": ["self", "state_dict", "load_optimizer_states"],
    f"{_STAGE_3}._restore_from_bit16_weights": ["self"],
    f"{_STAGE_3}._set_fp32_optimizer_param_groups": ["self"],
    f"{_STAGE_3}._clear_fp32_optimizer_param_groups": ["self"],
    f"{_STAGE_3}._partition_all_parameters": ["self"],
    f"{_STAGE_3}._swappable_optimizer_subgroup": ["self", "sub_group_id"],
    f"{_STAGE_3}._reassign_or_swap_out_partitioned_parameters": ["self", "sub_group_id"],
    f"{_SWAPPERS}.optimizer_utils:OptimizerSwapper.purge_state": ["self"],
    f"{_SWAPPERS}.optimizer_utils:OptimizerSwapper._get_param_swap_info": ["self", "parameter"],
    f"{_SWAPPERS}.optimizer_utils:OptimizerSwapper._io_aligned_numel": ["self", "numel"],
    f"{_SWAPPERS}.partitioned_optimizer_swapper:AsyncIOBuilder": None,
    f"{_SWAPPERS}.partitioned_param_swapper:AsyncIOBuilder": None,
    f"{_SWAPPERS}.pipelined_optimizer_swapper:AsyncIOBuilder": None,
    "runtime.zero.partition_parameters:AsyncPartitionedParameterSwapper.swap_in": [
        "self",
        "params",
        "async_op",
        "swap_in_buffers",
    ],
}
_EXPECTED = {**_DEEPSPEED, **(_DEEPSPEED_NVME if SUPPORTS_NVME else {})}


def _find(path: str) -> list[str] | str | None:
    """Return the parameters of a function in DeepSpeed, None for another object, or an error."""
    module, _, name = path.partition(":")
    try:
        value: Any = importlib.import_module(f"deepspeed.{module}")
        for part in name.split("."):
            owner, value = value, getattr(value, part)
        if getattr(value, "__module__", "").startswith("hpu_deepspeed"):
            # An earlier test on this rank has put our method in its place.
            bases = (base for base in owner.__mro__ if not base.__module__.startswith("hpu_deepspeed"))
            value = next(vars(base)[part] for base in bases if part in vars(base))
    except (AttributeError, ModuleNotFoundError) as error:
        return str(error)
    return list(inspect.signature(value).parameters) if inspect.isfunction(value) else None


def _find_all(paths: list[str]) -> dict[str, Any]:
    from hpu_deepspeed import _deepspeed

    _deepspeed.load()
    return {path: _find(path) for path in paths}


@pytest.fixture(scope="module")
def found(on_ranks: OnRanks) -> dict[str, Any]:
    """Return the parameters of each name; DeepSpeed is imported on a rank, where it uses the simulator."""
    first, _ = on_ranks(_find_all, list(_EXPECTED))
    return dict(first)


@pytest.mark.parametrize("path", _EXPECTED)
def test_deepspeed_has_the_name(path: str, found: dict[str, Any]) -> None:
    """Functions have the expected parameters, unless a decorator hides them."""
    assert found[path] in (_EXPECTED[path], ["args", "kwargs"])
