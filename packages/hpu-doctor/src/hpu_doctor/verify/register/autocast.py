"""Automatic mixed precision: which operators run in which dtype."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from hpu_doctor.verify.assumption import Subject
from hpu_doctor.verify.register._tools import BRIDGE, TORCH

SUBJECT = Subject("Autocast")
assume = SUBJECT.assume

_LISTS = BRIDGE + "hpu_ops/autocast_helpers.h:34-137"


def _dtypes(operators: dict[str, Callable[[Any], Any]], dtype: Any = None) -> dict[str, str]:
    """Return the dtype of each operator's result under autocast, for float32 unless another dtype is given."""
    inputs = torch.full((2, 4, 4), 0.5, dtype=dtype or torch.float32, device="hpu")
    with torch.autocast("hpu", dtype=torch.bfloat16):
        return {name: str(operator(inputs).dtype).removeprefix("torch.") for name, operator in operators.items()}


@assume(
    source=_LISTS,
    expected=dict.fromkeys(("matmul", "linear", "bmm", "conv1d", "mul", "mean"), "bfloat16"),
    means={
        "hpu-precision": "its page of lists would name the wrong operators.",
        "hpu-sim": "losses in bf16 would differ from a card's.",
    },
)
def products_are_lowered() -> object:
    """Products, convolutions, `mul` and `mean` run in bfloat16."""
    weight = torch.ones(4, 4, device="hpu")
    return _dtypes(
        {
            "matmul": lambda x: x @ x,
            "linear": lambda x: functional.linear(x, weight),
            "bmm": lambda x: torch.bmm(x, x),
            "conv1d": lambda x: functional.conv1d(x, weight[:, :, None]),
            "mul": lambda x: torch.mul(x, x),
            "mean": lambda x: x.mean(),
        }
    )


@assume(
    source=_LISTS,
    expected=dict.fromkeys(("softmax", "log_softmax", "dropout", "leaky_relu"), "bfloat16"),
    means={"hpu-precision": "softmax would be exact where the page says that it is not."},
)
def softmax_is_lowered() -> object:
    """Unlike on CUDA, softmax, log_softmax and dropout run in bfloat16."""
    return _dtypes(
        {
            "softmax": lambda x: functional.softmax(x, -1),
            "log_softmax": lambda x: functional.log_softmax(x, -1),
            "dropout": lambda x: functional.dropout(x, 0.5),
            "leaky_relu": functional.leaky_relu,
        }
    )


@assume(
    source=BRIDGE + "hpu_ops/autocast_helpers.h:112-116,280-297",
    expected={"layer_norm": "bfloat16", "group_norm": "bfloat16"},
    means={"hpu-precision": "norms with weights in float32 would fail or run in float32."},
)
def norms_are_lowered() -> object:
    """Norms run in bfloat16 with weights in float32: only their first argument is cast."""
    weight = torch.ones(4, device="hpu")
    return _dtypes(
        {
            "layer_norm": lambda x: functional.layer_norm(x, (4,), weight, weight),
            "group_norm": lambda x: functional.group_norm(x, 2, weight, weight),
        }
    )


@assume(
    source=_LISTS,
    expected=dict.fromkeys(("exp", "log", "pow", "div", "mse_loss", "rsqrt", "topk"), "float32"),
    means={"hpu-precision": "losses would be computed in bfloat16."},
)
def losses_stay_in_float32() -> object:
    """Exponentials, powers, divisions, losses and `topk` run in float32 for bfloat16 inputs."""
    return _dtypes(
        {
            "exp": torch.exp,
            "log": torch.log,
            "pow": lambda x: torch.pow(x, 2),
            "div": lambda x: torch.div(x, x),
            "mse_loss": lambda x: functional.mse_loss(x, x),
            "rsqrt": torch.rsqrt,
            "topk": lambda x: x.topk(2).values,
        },
        torch.bfloat16,
    )


@assume(
    source=_LISTS,
    expected={"add": "float32", "cat": "float32", "stack": "float32"},
    means={"hpu-precision": "residual sums of both dtypes would lose precision or fail."},
)
def sums_are_promoted() -> object:
    """`add`, `cat` and `stack` of bfloat16 and float32 give float32."""
    other = torch.full((2, 4, 4), 0.5, dtype=torch.bfloat16, device="hpu")
    return _dtypes(
        {
            "add": lambda x: torch.add(x, other),
            "cat": lambda x: torch.cat([x, other]),
            "stack": lambda x: torch.stack([x, other]),
        }
    )


@assume(
    source=BRIDGE + "hpu_ops/autocast_helpers.h, no sum, cumsum or norm",
    expected={"sum": "bfloat16", "relu": "bfloat16", "abs": "bfloat16"},
    means={"hpu-precision": "sums of bfloat16 would be exact, unlike the page says."},
)
def other_operators_keep_their_dtype() -> object:
    """Operators in no list, such as `sum`, run in the dtype of their input."""
    return _dtypes({"sum": torch.sum, "relu": torch.relu, "abs": torch.abs}, torch.bfloat16)


@assume(
    source=TORCH + "; Intel's page of mixed precision",
    expected="torch.bfloat16",
    means={"hpu-precision": "`bf16-mixed` would have to name its dtype."},
)
def default_dtype_is_bfloat16() -> object:
    """`torch.autocast("hpu")` without a dtype computes in bfloat16."""
    with torch.autocast("hpu"):
        return str((torch.ones(2, 2, device="hpu") @ torch.ones(2, 2, device="hpu")).dtype)


@assume(
    source=TORCH,
    expected="torch.float32",
    means={"hpu-precision": "parts of a module on the CPU would be cast as well."},
)
def cpu_tensors_are_not_cast() -> object:
    """`torch.autocast("hpu")` does not cast operators of CPU tensors."""
    with torch.autocast("hpu", dtype=torch.bfloat16):
        return str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)


@assume(
    source=BRIDGE + "hpu_ops/autocast_helpers.h: casts are never cached",
    expected=2.0,
    means={"hpu-precision": "a weight that is changed within an autocast block would have its old value."},
)
def casts_are_not_cached() -> object:
    """A weight that changes within an autocast block is cast again."""
    weight = torch.nn.Parameter(torch.ones(2, 2, device="hpu"))
    ones = torch.ones(1, 2, device="hpu")
    with torch.autocast("hpu", dtype=torch.bfloat16):
        torch.mm(ones, weight)
        with torch.no_grad():
            weight.zero_().add_(1.0)
        return torch.mm(ones, weight).float().cpu()[0, 0].item()


@assume(
    source=BRIDGE + "hpu_ops/autocast_helpers.h:26-28; hpu_ops/backend/autocast_helpers.cpp:24-65",
    expected=["float32", "bfloat16"],
    mode="eager",
    quick=False,
    variables={"PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "lower.txt"},
    files={"lower.txt": "relu\n"},
    means={"hpu-precision": "its lists of operators would add to the defaults instead of replacing them."},
)
def list_replaces_the_default() -> object:
    """The file of PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST replaces the default list."""
    return list(_dtypes({"matmul": lambda x: x @ x, "relu": torch.relu}).values())


@assume(
    source=TORCH + "; Intel's page of mixed precision",
    expected="GradScaler",
    releases=">=1.18",
    means={"hpu-precision": "`16-mixed` could not scale its losses."},
)
def grad_scaler_exists() -> object:
    """`torch.amp.GradScaler("hpu")` can be created."""
    scaler: Any = torch.amp.GradScaler
    return type(scaler("hpu")).__name__
