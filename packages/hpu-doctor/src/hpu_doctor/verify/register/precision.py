"""Automatic mixed precision, attention, the transformer engine, fused optimizers, and DeepSpeed's accelerator."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, contains
from hpu_doctor.verify.register._tools import BRIDGE, module, parameters_of

AUTOCAST = Subject("Autocast")
ATTENTION = Subject("Attention")
ENGINES = Subject("DeepSpeed, transformer engine and optimizers")

_LATER = ("GAUDI2", "GAUDI3")


def _dtype(operator: Callable[[Any], Any], dtype: torch.dtype) -> str:
    """Return the dtype of an operator's result under autocast, for inputs of a dtype."""
    inputs = torch.full((2, 4, 4), 0.5, dtype=dtype, device="hpu")
    with torch.autocast("hpu", dtype=torch.bfloat16):
        return str(operator(inputs).dtype).removeprefix("torch.")


def _rows(expected: str, dtype: torch.dtype, **operators: Callable[[Any], Any]) -> dict[str, tuple[object, Any]]:
    return {name: (expected, functools.partial(_dtype, each, dtype)) for name, each in operators.items()}


def _ones(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(size, dtype=dtype, device="hpu")


def _other() -> torch.Tensor:
    return _ones(2, 4, 4, dtype=torch.bfloat16)


AUTOCAST.table(
    "autocast-lists",
    "Under autocast products, `mean`, softmax, dropout and `layer_norm` (with weights in float32) run in bfloat16; "
    "exponentials, powers, divisions and losses in float32; sums of both dtypes are float32; other operators keep the "
    "dtype of their input.",
    {
        **_rows(
            "bfloat16",
            torch.float32,
            matmul=lambda x: x @ x,
            mean=lambda x: x.mean(),
            softmax=lambda x: functional.softmax(x, -1),
            dropout=lambda x: functional.dropout(x, 0.5),
            layer_norm=lambda x: functional.layer_norm(x, (4,), _ones(4), _ones(4)),
        ),
        **_rows(
            "float32",
            torch.bfloat16,
            exp=torch.exp,
            pow=lambda x: torch.pow(x, 2),
            div=lambda x: torch.div(x, x),
            mse_loss=lambda x: functional.mse_loss(x, x),
        ),
        **_rows(
            "float32",
            torch.float32,
            add=lambda x: torch.add(x, _other()),
            cat=lambda x: torch.cat([x, _other()]),
        ),
        **_rows("bfloat16", torch.bfloat16, sum=lambda x: x.sum(-1), relu=lambda x: x.relu(), abs=lambda x: x.abs()),
    },
    source=BRIDGE + "hpu_ops/autocast_helpers.h:34-137,280-297",
    means={
        "hpu-precision": "its page of lists would name the wrong operators.",
        "hpu-sim": "losses in bf16 would differ from a card's.",
    },
)


def _default() -> list[str]:
    with torch.autocast("hpu"):
        return [str((each @ each).dtype) for each in (_ones(2, 2), torch.ones(2, 2))]


def _cast_twice() -> float:
    weight, ones = torch.nn.Parameter(_ones(2, 2)), _ones(1, 2)
    with torch.autocast("hpu", dtype=torch.bfloat16):
        torch.mm(ones, weight)
        with torch.no_grad():
            weight.zero_().add_(1.0)
        return torch.mm(ones, weight).float().cpu()[0, 0].item()


AUTOCAST.table(
    "autocast-of-hpu",
    '`torch.autocast("hpu")` computes in bfloat16 by default, casts no operator of CPU tensors, and casts again '
    "a weight that changes within its block.",
    {"hpu and CPU": (["torch.bfloat16", "torch.float32"], _default), "changed weight": (2.0, _cast_twice)},
    source=BRIDGE + "hpu_ops/autocast_helpers.h: casts are never cached; Intel's page of mixed precision",
    means={"hpu-precision": "`bf16-mixed` would have to name its dtype, cast on the CPU, or use an old weight."},
)


@AUTOCAST.assume(
    source=BRIDGE + "hpu_ops/autocast_helpers.h:26-28; hpu_ops/backend/autocast_helpers.cpp:24-65",
    expected=["float32", "bfloat16"],
    mode="eager",
    variables={"PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "lower.txt"},
    files={"lower.txt": "relu\n"},
    means={"hpu-precision": "its lists of operators would add to the defaults instead of replacing them."},
)
def list_replaces_the_default() -> object:
    """The file of PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST replaces the default list."""
    return [_dtype(operator, torch.float32) for operator in (lambda x: x @ x, torch.relu)]


def _attends(mask: torch.Tensor | None = None, *, heads: int = 4, shared: int = 1, is_causal: bool = False) -> bool:
    """Return whether FusedSDPA's output and gradients are those of torch's function on the CPU."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, each, 8, 16) for each in (heads, heads // shared, heads // shared)]
    plain, fused = ([each.detach().to(device).requires_grad_() for each in inputs] for device in ("cpu", "hpu"))
    query, key, value = plain
    key, value = (each.repeat_interleave(shared, 1) for each in (key, value))
    expected = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal)
    mask = None if mask is None else mask.to("hpu")
    result = module("hpex.kernels").FusedSDPA.apply(*fused, mask, 0.0, is_causal, None)
    wanted = [expected, *torch.autograd.grad(expected.square().sum(), plain)]
    seen = [result, *torch.autograd.grad(result.square().sum(), fused)]
    pairs = zip(wanted, seen, strict=True)
    return all(torch.allclose(each, other.cpu(), atol=1e-2, rtol=1e-2) for each, other in pairs)


def _padding(*size: int) -> torch.Tensor:
    """Return a mask of finite values that hides keys at the end."""
    return torch.zeros(size).masked_fill(torch.arange(size[-1]) > 5, torch.finfo().min)  # noqa: PLR2004 - of eight.


ATTENTION.table(
    "fused-attention-agrees",
    "`FusedSDPA` computes torch's attention and its gradients, without and with a causal mask, with heads that share "
    "keys, and with masks of finite values that are broadcast over samples, heads or queries.",
    {
        "no mask": (True, _attends),
        "causal": (True, lambda: _attends(is_causal=True)),
        "shared keys": (True, lambda: _attends(shared=2, is_causal=True)),
        "mask of queries and keys": (True, lambda: _attends(_padding(1, 1, 8, 8))),
        "mask of keys": (True, lambda: _attends(_padding(2, 1, 1, 8))),
        "mask by head": (True, lambda: _attends(_padding(2, 4, 8, 8))),
        "mask, shared keys": (True, lambda: _attends(_padding(2, 1, 8, 8), shared=2)),
    },
    source=BRIDGE + "hpex/kernels/FusedSDPA.py:34-41,107-132; habana_eager/eager_custom_op_register.cpp",
    means={"hpu-kernels": "a model would train with another attention."},
)


def _clip() -> list[object]:
    parameter = torch.nn.Parameter(_ones(4))
    parameter.grad = 2 * _ones(4)
    norm = module("hpex.normalization").FusedClipNorm([parameter], 1.0).clip_norm([parameter])
    left = parameter.grad.norm().cpu().item()
    return [abs(left - 1) < 1e-2 and abs(float(norm) - 4) < 1e-2, type(norm).__name__.lower()]  # noqa: PLR2004 - norms.


def _step() -> list[object]:
    own, other = (torch.nn.Parameter(_ones(4)) for _ in range(2))
    fused: Any = module("hpex.optimizers").FusedAdamW([own], lr=0.1, eps=1e-8, weight_decay=0.01)
    plain = torch.optim.AdamW([other], lr=0.1, eps=1e-8, weight_decay=0.01)
    for parameter, optimizer in ((own, fused), (other, plain)):
        parameter.grad = 0.5 * _ones(4)
        optimizer.step()
    same = torch.allclose(own.detach().cpu(), other.detach().cpu(), atol=1e-3)
    return [same, sorted(fused.state[own]), "step" in fused.param_groups[0]]


def _continues(name: str, state: str, **options: Any) -> bool:
    """Return whether a fused optimizer without parameters steps on those and the state that it gets as torch's."""
    own, other = (torch.nn.Parameter(_ones(4)) for _ in range(2))
    plain: Any = getattr(torch.optim, name)([other], **options)
    fused: Any = getattr(module("hpex.optimizers"), f"Fused{name}")([torch.nn.Parameter(_ones(1))], **options)
    for parameter in (own, other):
        parameter.grad = 0.5 * _ones(4)
    plain.step()
    with torch.no_grad():
        own.copy_(other)
    fused.param_groups[0]["params"] = [own]
    fused.state[own] = {state: plain.state[other][state].clone(), "step": 1}
    fused.step()
    plain.step()
    return torch.allclose(own.detach().cpu(), other.detach().cpu(), atol=1e-3)


def _normalizes() -> bool:
    inputs, weight = torch.linspace(-1, 3, 16).view(2, 8), torch.linspace(0.5, 1.5, 8)
    expected = weight * inputs * torch.rsqrt(inputs.square().mean(-1, keepdim=True) + 1e-6)
    result = module("hpex.normalization").FusedRMSNorm.apply(inputs.to("hpu"), weight.to("hpu"), 1e-6)
    return torch.allclose(result.cpu(), expected, atol=1e-3)


def _rotates() -> bool:
    inputs = torch.linspace(-1, 3, 2 * 2 * 3 * 8).view(2, 2, 3, 8)
    angles = torch.linspace(0, 3, 3 * 4).view(1, 1, 3, 4).repeat(1, 1, 1, 2)
    first, second = inputs.chunk(2, -1)
    expected = inputs * angles.cos() + torch.cat((-second, first), -1) * angles.sin()
    tables = angles.cos().to("hpu"), angles.sin().to("hpu")
    result = module("hpex.kernels").RotaryPosEmbeddingHelperV1.apply(inputs.to("hpu"), *tables, 0)
    return torch.allclose(result.cpu(), expected, atol=1e-3)


ENGINES.table(
    "fused-functions-agree",
    "`FusedAdamW` steps as torch's AdamW does, with two moments per parameter and its step in the group, `FusedSGD` "
    "and `FusedAdagrad` go on from a state of torch's, `FusedClipNorm.clip_norm` clips in place and returns the norm, "
    "and `FusedRMSNorm` and `RotaryPosEmbeddingHelperV1` compute what transformers' Llama does.",
    {
        "FusedAdamW": ([True, ["exp_avg", "exp_avg_sq"], True], _step),
        "FusedSGD": (True, lambda: _continues("SGD", "momentum_buffer", lr=0.1, momentum=0.9)),
        "FusedAdagrad": (True, lambda: _continues("Adagrad", "sum", lr=0.1)),
        "FusedClipNorm": ([True, contains("tensor")], _clip),
        "FusedRMSNorm": (True, _normalizes),
        "RotaryPosEmbeddingHelperV1": (True, _rotates),
    },
    source=BRIDGE + "hpex/optimizers and hpex/normalization",
    means={
        "hpu-kernels": "a model would train otherwise, or lose its momentum when it is resumed.",
        "hpu-deepspeed": "clipping by the bridge's function would need another call.",
        "hpu-sim": "losses with the fused optimizer would differ from a card's.",
    },
)


def _engine(name: str = "") -> Any:
    engine = bridge.transformer_engine()
    return importlib.import_module(f"{engine.__name__}.{name}") if name else engine


def _fp8_available() -> list[object]:
    fp8 = _engine("fp8")
    available, reason = getattr(fp8, "FP8GlobalStateManager", fp8).is_fp8_available()
    return [bool(available), str(reason)]


def _fp8_linear() -> list[bool]:
    engine = _engine()
    torch.manual_seed(0)
    layer = engine.Linear(16, 16, bias=False)
    inputs = torch.randn(16, 16).to("hpu")
    with engine.fp8_autocast(enabled=True):
        result = layer(inputs)
    exact = inputs.float() @ layer.weight.float().t()
    is_close = (result.float() - exact).abs().mean() < 0.2 * exact.abs().mean()
    return [bool(is_close.cpu()), "_extra_state" in layer.state_dict()]


_PARAMETERS = ["in_features", "out_features", "bias", "params_dtype", "device", "minimize_memory"]
_ENGINE = BRIDGE + "hpex/experimental/transformer_engine"
ENGINES.table(
    "transformer-engine-computes",
    "On Gaudi 2 and later the transformer engine has fp8, off by default; its Linear is near a "
    "product in float32, has `_extra_state`, and takes the parameters of our replacement.",
    {
        "is_fp8_available": (True, lambda: _fp8_available()[0]),
        "fp8_autocast(enabled=)": (
            False,
            lambda: inspect.signature(_engine().fp8_autocast).parameters["enabled"].default,
        ),
        "Linear": ([True, True], _fp8_linear),
        "parameters of Linear": (
            _PARAMETERS,
            lambda: [name for name in _PARAMETERS if name in parameters_of(_engine().Linear.__init__)],
        ),
    },
    source=_ENGINE + "; NVIDIA's default of fp8_autocast is True",
    releases=">=1.14",
    generations=_LATER,
    means={
        "hpu-precision": "training in fp8 would be refused where it works, be on where nobody asks, or lose scales."
    },
)
