"""The strategies of the Trainer and of Fabric before the rendezvous."""

import inspect
from abc import ABCMeta, abstractmethod
from importlib.machinery import SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.distributed.checkpoint import optimizer
from torch.distributed.fsdp import ShardingStrategy

import hpu_fsdp
from hpu_core import HPUAccelerator, HPUCheckpointIO, frameworks
from hpu_fsdp import (
    FabricHPUFSDPPrecision,
    FabricHPUFSDPStrategy,
    HPUFSDPPrecision,
    HPUFSDPStrategy,
    _setup,
    _torch,
)
from hpu_fsdp import _lightning as _lightning_names
from hpu_fsdp._lightning import FabricFSDPPrecision, FSDPPrecision

_lightning = frameworks.current()

BOTH = pytest.mark.parametrize("kind", [HPUFSDPStrategy, FabricHPUFSDPStrategy])


@BOTH
def test_invalid_context_parallel_size(kind: Any) -> None:
    with pytest.raises(ValueError, match="`context_parallel_size` must be a positive int, got 0"):
        kind(context_parallel_size=0)


def test_other_precision_plugin_is_refused() -> None:
    plugin = _lightning.pytorch("plugins.precision").HalfPrecision("bf16-true")

    with pytest.raises(TypeError, match="must be of class HPUFSDPPrecision with FSDP, got HalfPrecision"):
        HPUFSDPStrategy(precision_plugin=plugin)
    with pytest.raises(TypeError, match="must be of class FabricHPUFSDPPrecision with FSDP, got HalfPrecision"):
        FabricHPUFSDPStrategy(precision=plugin)


def test_lightnings_precision_plugin_is_replaced() -> None:
    """Lightning's own enters autocast for CUDA."""
    trainers = HPUFSDPStrategy(precision_plugin=FSDPPrecision("bf16-mixed")).precision_plugin
    fabrics = FabricHPUFSDPStrategy(precision=FabricFSDPPrecision("bf16-true")).precision

    assert (type(trainers), trainers.precision) == (HPUFSDPPrecision, "bf16-mixed")
    assert (type(fabrics), fabrics.precision) == (FabricHPUFSDPPrecision, "bf16-true")


@BOTH
def test_module_without_parameters_is_refused(kind: Any) -> None:
    strategy = kind(accelerator=HPUAccelerator())

    with (
        pytest.raises(ValueError, match="the module must have parameters to shard, got Tanh without any"),
        _setup.prepare_units(strategy, torch.nn.Tanh()),
    ):
        pass


@pytest.mark.parametrize("kind", [HPUFSDPStrategy, FabricHPUFSDPStrategy, HPUFSDPPrecision, FabricHPUFSDPPrecision])
def test_older_lightning_is_refused(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "current", lambda: SimpleNamespace(version=Version("2.2.5")))

    with pytest.raises(ImportError, match=rf"{kind.__name__} needs Lightning 2.3 and torch 2.3, .*got 2.2.5"):
        kind()


@BOTH
def test_older_torch_is_refused(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot free a gathered parameter."""
    monkeypatch.setattr(torch, "__version__", "2.2.2+cpu")

    with pytest.raises(ImportError, match=rf"{kind.__name__} needs .* torch 2.3, .* SynapseAI 1.17, .* and 2.2.2"):
        kind()


def test_class_whose_base_lightning_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the base, methods that a strategy must have are abstract, which Python would report."""
    monkeypatch.delattr(_lightning.pytorch("strategies"), "ModelParallelStrategy")
    loader = SourceFileLoader("hpu_fsdp._lightning_before_2_3", str(_lightning_names.__file__))
    old_names = ModuleType(loader.name)
    loader.exec_module(old_names)
    monkeypatch.setattr(frameworks, "current", lambda: SimpleNamespace(version=Version("2.2.5")))
    methods = {"root_device": abstractmethod(lambda _: None)}
    kind = ABCMeta("HPUModelParallelStrategy", (old_names.ModelParallelStrategy,), methods)

    with pytest.raises(ImportError, match=r"HPUModelParallelStrategy needs Lightning 2\.4 .*, got 2\.2\.5"):
        kind()


def test_torch_has_the_private_names() -> None:
    """The handle of a sharded module, its method that drops gradients, and the hooks on outputs."""
    from torch.distributed.fsdp import _runtime_utils
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    assert callable(FlatParamHandle._reset_flat_param_grad_info_if_needed)
    hooks = inspect.signature(_runtime_utils._register_pre_backward_hooks)
    assert list(hooks.parameters) == ["state", "module", "outputs", "handle"]
    assert {name for name in _torch._UNSHARDED_AFTER_FORWARD if name in ShardingStrategy.__members__}


def test_a_checkpoint_plugin_is_refused_by_fabric() -> None:
    """As by Lightning: torch writes the files."""
    strategy = FabricHPUFSDPStrategy()
    with pytest.raises(NotImplementedError, match="does not support setting a `CheckpointIO` plugin"):
        strategy.checkpoint_io = HPUCheckpointIO()


@pytest.mark.parametrize("kind", [HPUFSDPStrategy, hpu_fsdp.HPUModelParallelStrategy])
def test_callbacks_that_need_whole_parameters_are_checked(kind: Any) -> None:
    assert kind.shards_parameters


def test_torch_allocates_optimizer_states_by_a_private_function() -> None:
    assert list(inspect.signature(optimizer._alloc_tensor).parameters) == ["props", "size", "device_type"]
