"""DeepSpeed's accelerator for hpu, the transformer engine, and fused optimizers."""

import functools
import importlib
import inspect
from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Contains, NotTriedError, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, module, parameters_of

SUBJECT = Subject("DeepSpeed, transformer engine and optimizers")
assume = SUBJECT.assume
# The first release with the transformer engine.
assume_from_1_14 = functools.partial(assume, releases=">=1.14")
# Importing it takes seconds.
assume_of_deepspeed = functools.partial(assume, quick=False)

_DEEPSPEED = "DeepSpeed accelerator/hpu_accelerator.py"
_LATER = ("GAUDI2", "GAUDI3")


def _accelerator() -> Any:
    bridge.load()
    try:
        # It is part of Intel's images, and these packages do not require it.
        accelerator = importlib.import_module("deepspeed.accelerator")
    except ImportError as error:
        raise NotTriedError(f"DeepSpeed cannot be imported: {error}") from error
    return accelerator.get_accelerator()


def _engine() -> Any:
    try:
        return bridge.transformer_engine()
    except ModuleNotFoundError as error:
        raise NotTriedError(str(error)) from error


@assume_of_deepspeed(
    source=_DEEPSPEED,
    expected=["hpu", "hccl", "hpu_backend"],
    means={"hpu-deepspeed": "DeepSpeed would choose another device, and every strategy would fail."},
)
def deepspeed_finds_hpu() -> object:
    """DeepSpeed's accelerator is hpu, with the communication backend hccl and the compiler hpu_backend."""
    accelerator = _accelerator()
    compiler = getattr(accelerator, "get_compile_backend", lambda: "hpu_backend")()
    return [accelerator._name, accelerator.communication_backend_name(), compiler]  # noqa: SLF001 - as DeepSpeed reads it.


@assume_of_deepspeed(
    source=_DEEPSPEED + ", total_memory",
    expected=True,
    means={"hpu-deepspeed": "ZeRO's estimates of memory would be wrong."},
)
def deepspeed_total_memory_is_the_limit() -> object:
    """DeepSpeed's total memory is the statistic Limit."""
    return _accelerator().total_memory() == bridge.memory_stats()["Limit"]


@assume_of_deepspeed(
    source=_DEEPSPEED + " calls torch.hpu.reset_max_memory_allocated, which does not exist",
    expected=Contains("AttributeError"),
    means={"hpu-deepspeed": "its stand-in for the function would be needless."},
)
def deepspeed_cannot_reset_peaks() -> object:
    """DeepSpeed's `reset_max_memory_allocated` raises an AttributeError on hpu."""
    accelerator = _accelerator()
    return error_of(accelerator.reset_max_memory_allocated)


@assume_of_deepspeed(
    source=_DEEPSPEED + ", supported_dtypes",
    expected=True,
    generations=_LATER,
    means={"hpu-deepspeed": "precision bf16 would be refused."},
)
def deepspeed_supports_bf16() -> object:
    """DeepSpeed's dtypes on hpu have float32 and bfloat16."""
    return {torch.float32, torch.bfloat16} <= set(_accelerator().supported_dtypes())


@assume_from_1_14(
    source=BRIDGE + "hpex/experimental/transformer_engine",
    expected="no error",
    means={"hpu-precision": "training in fp8 would be refused for want of the module."},
)
def transformer_engine_can_be_imported() -> object:
    """The transformer engine can be imported from the bridge."""
    return error_of(bridge.transformer_engine)


@assume_from_1_14(
    source=BRIDGE + "transformer engine, fp8_autocast; NVIDIA's default is True",
    expected=False,
    means={"hpu-precision": "fp8 would be on where the plugin does not ask for it."},
)
def fp8_autocast_is_off_by_default() -> object:
    """`fp8_autocast()` is disabled by default, unlike NVIDIA's."""
    return inspect.signature(_engine().fp8_autocast).parameters["enabled"].default


@assume_from_1_14(
    source=BRIDGE + "transformer engine, fp8.is_fp8_available",
    expected=True,
    generations=_LATER,
    means={"hpu-precision": "fp8 would be refused on a card that has it."},
)
def fp8_is_available() -> object:
    """The transformer engine has fp8 on Gaudi 2 and later."""
    return _fp8_available()[0]


@assume_from_1_14(
    source=BRIDGE + "transformer engine: FP8 not supported on Gaudi, Gaudi2 or higher required",
    expected=[False, Contains("not supported on Gaudi")],
    generations=("GAUDI",),
    means={"hpu-precision": "fp8 would be tried on the first generation."},
)
def fp8_is_unavailable() -> object:
    """The transformer engine has no fp8 on the first generation."""
    return list(_fp8_available())


@assume_from_1_14(
    source=BRIDGE + "transformer engine, recipe.DelayedScaling",
    expected={"HYBRID": "no error", "E5M2": "no error", "E4M3": Contains("Error")},
    means={"hpu-precision": "its check of recipes would refuse what works, or let through what fails."},
)
def recipe_formats() -> object:
    """`DelayedScaling` takes the formats E5M2 and HYBRID, and not E4M3."""
    recipe = importlib.import_module(f"{_engine().__name__}.recipe")
    return {
        name: error_of(lambda name=name: recipe.DelayedScaling(fp8_format=getattr(recipe.Format, name)))  # type: ignore[misc]
        for name in ("HYBRID", "E5M2", "E4M3")
    }


@assume_from_1_14(
    source=BRIDGE + "transformer engine, Linear",
    expected=[True, True],
    generations=_LATER,
    means={"hpu-precision": "checkpoints of fp8 layers would lack their scales."},
)
def fp8_linear_computes() -> object:
    """`te.Linear` under fp8 is near a product in float32, and its state has `_extra_state`."""
    engine = _engine()
    torch.manual_seed(0)
    layer = engine.Linear(16, 16, bias=False)
    inputs = torch.randn(16, 16).to("hpu")
    with engine.fp8_autocast(enabled=True):
        result = layer(inputs)
    exact = inputs.float() @ layer.weight.float().t()
    near = (result.float() - exact).abs().mean() < 0.2 * exact.abs().mean()
    return [bool(near.cpu()), "_extra_state" in layer.state_dict()]


@assume_from_1_14(
    source=BRIDGE + "transformer engine, Linear",
    expected=["in_features", "out_features", "bias", "params_dtype", "device", "minimize_memory"],
    means={"hpu-precision": "replacing Linear layers would fail."},
)
def te_linear_parameters() -> object:
    """`te.Linear` has the parameters that the replacement of layers uses."""
    names = parameters_of(_engine().Linear.__init__)
    expected = ("in_features", "out_features", "bias", "params_dtype", "device", "minimize_memory")
    return [name for name in expected if name in names]


@assume(
    source=BRIDGE + "hpex/optimizers, FusedAdamW: the step counter is in the group",
    expected=[["exp_avg", "exp_avg_sq"], True],
    means={"hpu-core": "checkpoints of the fused optimizer would restore no step."},
)
def fused_adamw_state() -> object:
    """`FusedAdamW` keeps two moments per parameter, and its step in the group."""
    parameter = torch.nn.Parameter(torch.ones(4, device="hpu"))
    optimizer = module("hpex.optimizers").FusedAdamW([parameter], lr=0.1)
    parameter.grad = torch.ones(4, device="hpu")
    optimizer.step()
    return [sorted(optimizer.state[parameter]), "step" in optimizer.param_groups[0]]


@assume(
    source=BRIDGE + "hpex/optimizers, FusedAdamW",
    expected=True,
    means={"hpu-sim": "losses with the fused optimizer would differ from a card's."},
)
def fused_adamw_agrees() -> object:
    """`FusedAdamW` steps as torch's AdamW does."""
    own, other = (torch.nn.Parameter(torch.ones(4, device="hpu")) for _ in range(2))
    fused = module("hpex.optimizers").FusedAdamW([own], lr=0.1, eps=1e-8, weight_decay=0.01)
    plain = torch.optim.AdamW([other], lr=0.1, eps=1e-8, weight_decay=0.01)
    for parameter, optimizer in ((own, fused), (other, plain)):
        parameter.grad = torch.full((4,), 0.5, device="hpu")
        optimizer.step()
    return bool(torch.allclose(own.detach().cpu(), other.detach().cpu(), atol=1e-3))


@assume(
    source=BRIDGE + "hpex/optimizers, FusedLamb: amsgrad",
    expected=Contains("RuntimeError"),
    means={"hpu-sim": "an argument that a card refuses would pass."},
)
def fused_lamb_refuses_amsgrad() -> object:
    """`FusedLamb(amsgrad=True)` is an error."""
    parameter = torch.nn.Parameter(torch.ones(4, device="hpu"))
    return error_of(lambda: module("hpex.optimizers").FusedLamb([parameter], amsgrad=True))


def _fp8_available() -> tuple[bool, str]:
    fp8 = importlib.import_module(f"{_engine().__name__}.fp8")
    manager = getattr(fp8, "FP8GlobalStateManager", fp8)
    available, reason = manager.is_fp8_available()
    return bool(available), str(reason)
