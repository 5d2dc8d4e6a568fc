"""Attention: torch's function, and the bridge's fused kernel."""

from typing import Any

import torch

from hpu_doctor.verify.assumption import Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, hpu, module

SUBJECT = Subject("Attention")
assume = SUBJECT.assume


def _inputs(heads: int = 2) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    query = torch.randn(1, heads, 8, 16).to("hpu")
    key, value = torch.randn(2, 1, 2, 8, 16).to("hpu").unbind()
    return query, key, value


def _fused() -> Any:
    return module("hpex.kernels").FusedSDPA


@assume(
    source=BRIDGE + "scripts/hpu_op.yaml has no scaled_dot_product_attention; hpu_ops/autocast_helpers.h:61",
    expected=True,
    means={
        "hpu-core": "models that call torch's function would not need another kernel.",
        "hpu-sim": "memory of attention would be planned too high.",
    },
    simulator="strict",
)
def torch_attention_is_decomposed() -> object:
    """`scaled_dot_product_attention` runs as separate products and a softmax."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Names():  # type: ignore[no-untyped-call]
        torch.nn.functional.scaled_dot_product_attention(*_inputs())
    return any("softmax" in name for name in seen) and sum("bmm" in name for name in seen) == 2  # noqa: PLR2004 - two.


@assume(
    source=BRIDGE + "hpex/kernels/FusedSDPA.py",
    expected=True,
    releases=">=1.13",
    means={"hpu-sim": "models with fused attention would give other numbers on a card."},
)
def fused_attention_agrees() -> object:
    """`FusedSDPA` computes what torch's function does, to the precision of bfloat16."""
    inputs = _inputs()
    fused = _fused().apply(*inputs, None, 0.0, True)
    query, key, value = (tensor.cpu() for tensor in inputs)
    plain = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return bool((fused.cpu() - plain).abs().max() < 0.05)  # noqa: PLR2004 - bfloat16 inside.


@assume(
    source=BRIDGE + "backend/helpers/runtime_config.cpp:33",
    expected=True,
    means={"hpu-sim": "fused attention would keep its weights for the backward pass."},
)
def recompute_is_on() -> object:
    """Recomputation of fused attention in the backward pass is on by default."""
    return hpu().recompute_sdp_enabled()


@assume(
    source=BRIDGE + "hpex/kernels/FusedSDPA.py:34-41,107-132",
    expected="torch.Size([1, 4, 8, 16])",
    releases=">=1.19",
    means={"hpu-sim": "models with fewer heads of keys than of queries would fail on a card."},
)
def fused_attention_groups_queries() -> object:
    """`FusedSDPA` takes more heads of queries than of keys."""
    return f"torch.Size({list(_fused().apply(*_inputs(heads=4)).shape)})"


@assume(
    source=BRIDGE + "hpex/kernels/FusedSDPA.py:107-132",
    expected=True,
    releases=">=1.19",
    simulator="strict",
    means={"hpu-sim": "a program that a card refuses would pass."},
)
def valid_lengths_need_causal() -> object:
    """`FusedSDPA` refuses `valid_seq_len` without `is_causal`."""
    lengths = torch.tensor([4], dtype=torch.int32).to("hpu")
    query, key, value = _inputs()

    def call() -> object:
        with torch.no_grad():
            return _fused().apply(query, key, value, None, 0.0, False, None, "fast", None, lengths, "right")

    return error_of(call) != "no error"


@assume(
    source=BRIDGE + "hpex/kernels/FusedSDPA.py, backward",
    expected=[True, True, True],
    releases=">=1.13",
    means={"hpu-sim": "training through fused attention would give other gradients on a card."},
)
def fused_attention_has_gradients() -> object:
    """`FusedSDPA` has gradients for queries, keys and values."""
    inputs = [tensor.detach().requires_grad_() for tensor in _inputs()]
    _fused().apply(*inputs, None, 0.0, True).sum().backward()
    return [tensor.grad is not None for tensor in inputs]


@assume(
    source="a field report of 1.22.2: rows of padding only",
    expected=True,
    simulator="hardware",
    reason="its fused attention is torch's, which returns numbers for such rows",
    means={"hpu-bucketing": "masked rows of a padded batch would need no care."},
)
def masked_rows_are_not_numbers() -> object:
    """`FusedSDPA` returns NaN for a row that is masked entirely."""
    query, key, value = _inputs()
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bool).to("hpu")
    return bool(_fused().apply(query, key, value, mask).isnan().any().cpu())


@assume(
    source=BRIDGE + "hpu/__init__.py, sdp_kernel",
    expected=[False, True],
    means={"hpu-sim": "the context would not restore the setting."},
)
def recompute_can_be_switched() -> object:
    """`sdp_kernel(enable_recompute=False)` switches recomputation off within the context only."""
    with hpu().sdp_kernel(enable_recompute=False):
        within = hpu().recompute_sdp_enabled()
    return [within, hpu().recompute_sdp_enabled()]


@assume(
    source=BRIDGE + "hpex/normalization",
    expected=[True, Contains("tensor")],
    means={"hpu-deepspeed": "clipping by the bridge's function would need another call."},
)
def fused_clip_norm_returns_the_norm() -> object:
    """`FusedClipNorm.clip_norm` clips gradients in place and returns their norm."""
    parameter = torch.nn.Parameter(torch.ones(4, device="hpu"))
    parameter.grad = torch.full((4,), 2.0, device="hpu")
    norm = module("hpex.normalization").FusedClipNorm([parameter], 1.0).clip_norm([parameter])
    clipped = parameter.grad.norm().cpu().item()
    return [abs(clipped - 1) < 1e-2 and abs(float(norm) - 4) < 1e-2, type(norm).__name__.lower()]  # noqa: PLR2004 - norms.
