"""Calls of attention: which FusedSDPA computes, with which result, and why others are left to torch."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from hpu_core import bridge
from hpu_kernels import HPUKernels, attention, replacement

BATCH, HEADS, LENGTH, SIZE = 2, 4, 6, 8
# torch without `enable_gqa`.
OLD = "enable_gqa" not in (functional.scaled_dot_product_attention.__doc__ or "")


class Caller(nn.Module):
    """Module whose forward pass is the call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), device="hpu"))

    def forward(self, *args: Any, **options: Any) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*args, **options)


def make(*shape: int, dtype: torch.dtype = torch.float32, **options: Any) -> torch.Tensor:
    return torch.randn(*shape).to("hpu", dtype).requires_grad_(options.get("requires_grad", True))


def compare(*tensors: torch.Tensor, **options: Any) -> tuple[list[torch.Tensor], list[torch.Tensor], list[str]]:
    """Return result and gradients without and with the kernel, and what was noted."""
    caller, results = Caller(), []
    for kernels in (False, True):
        inputs = [each.detach().requires_grad_() for each in tensors]
        with HPUKernels(attention=kernels).apply(caller):
            output = caller(*inputs, **options)
            noted = [outcome for _, outcome in replacement.calls]
        output.float().square().sum().backward()
        results.append([output.detach(), *(each.grad for each in inputs if each.grad is not None)])
    return results[0], results[1], noted


def _padding(*shape: int) -> torch.Tensor:
    """Mask of keys, of which the last sample has none."""
    mask = torch.rand(*shape) > 0.3
    mask[..., 0] = True
    mask[-1] = False
    return mask.to("hpu")


def _added(mask: torch.Tensor, value: float) -> torch.Tensor:
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, value)


FULL = (BATCH, 1, LENGTH, LENGTH)
SHARED = "the mask differs by head, and several heads share a key"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(dict, id="no mask"),
        pytest.param(lambda: {"is_causal": True}, id="causal"),
        pytest.param(lambda: {"scale": 0.5}, id="scale"),
        pytest.param(lambda: {"attn_mask": _padding(*FULL)}, id="bool mask"),
        pytest.param(lambda: {"attn_mask": _padding(BATCH, 1, 1, LENGTH)}, id="bool mask of keys"),
        pytest.param(lambda: {"attn_mask": _padding(BATCH, HEADS, LENGTH, LENGTH)}, id="bool mask of heads"),
        pytest.param(lambda: {"attn_mask": _padding(LENGTH, LENGTH)}, id="mask without batch"),
        pytest.param(lambda: {"attn_mask": _added(_padding(*FULL), -torch.inf)}, id="additive mask"),
        pytest.param(lambda: {"attn_mask": _added(_padding(*FULL), torch.finfo().min)}, id="mask of least values"),
    ],
)
@pytest.mark.parametrize(
    "kv_heads", [HEADS, *(pytest.param(each, marks=pytest.mark.skipif(OLD, reason="torch 2.5")) for each in (2, 1))]
)
def test_call_computes_the_same(options: Any, kv_heads: int) -> None:
    """Also for queries without a key, for which the kernel returns NaN on a card and torch 0."""
    options = options()
    mask = options.get("attn_mask")
    if kv_heads != HEADS:
        options["enable_gqa"] = True
    torch.manual_seed(0)
    keys = (BATCH, kv_heads, LENGTH, SIZE)

    plain, fused, noted = compare(make(BATCH, HEADS, LENGTH, SIZE), make(*keys), make(*keys), **options)

    is_left = kv_heads != HEADS and mask is not None and mask.dim() == 4 and mask.shape[1] != 1
    assert noted == [f"left to torch, {SHARED}" if is_left else "FusedSDPA"]
    for expected, result in zip(plain, fused, strict=True):
        torch.testing.assert_close(result.cpu(), expected.cpu(), atol=1e-5, rtol=1e-5)


def test_calls_without_a_batch_of_heads_compute_the_same() -> None:
    plain, fused, noted = compare(*(make(BATCH, LENGTH, SIZE) for _ in range(3)), attn_mask=_padding(LENGTH, LENGTH))

    assert noted == ["FusedSDPA"]
    assert torch.allclose(plain[0].cpu(), fused[0].cpu(), atol=1e-5)


def test_kernel_never_gets_an_infinite_mask() -> None:
    """On a card it returns NaN for a row of them, in bfloat16 also for the least value of float32."""
    query = make(BATCH, HEADS, LENGTH, SIZE, dtype=torch.bfloat16)
    call = attention.Call(query, query, query)
    for mask in (_padding(*FULL), _added(_padding(*FULL), -torch.inf), _added(_padding(*FULL), torch.finfo().min)):
        kernel = mock.Mock(return_value=call.query)
        with mock.patch.object(attention, "_kernel", return_value=kernel):
            attention.attend(call._replace(attn_mask=mask))

        assert kernel.call_args.args[3].isfinite().all()
        assert kernel.call_args.args[3].dtype == torch.bfloat16


def test_layers_share_a_converted_mask() -> None:
    """Until the mask changes."""
    mask = _padding(*FULL)
    query = make(BATCH, HEADS, LENGTH, SIZE)
    call = attention.Call(query, query, query, mask)
    with mock.patch.object(attention, "_convert_mask", wraps=attention._convert_mask) as convert:
        for _ in range(2):
            attention.attend(call)
        assert convert.call_count == 1
        mask[0, 0, 0, 1] = True
        attention.attend(call)

    assert convert.call_count == 2


def _call(**changes: Any) -> attention.Call:
    shape = (BATCH, HEADS, LENGTH, SIZE)
    return attention.Call(**({"query": make(*shape), "key": make(*shape), "value": make(*shape)} | changes))


_SQUARE = (LENGTH, LENGTH)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (lambda: {"query": make(BATCH, HEADS, LENGTH, SIZE, dtype=torch.float64)}, "the dtype is not"),
        (lambda: {"key": make(BATCH, HEADS, LENGTH, SIZE, dtype=torch.bfloat16)}, "the dtype is not"),
        (lambda: {"query": make(LENGTH, SIZE)}, "the tensors are empty, or not of"),
        (lambda: {"query": make(1, HEADS, LENGTH, SIZE)}, "tensors are broadcast"),
        (lambda: {"query": make(BATCH, HEADS, 0, SIZE)}, "the tensors are empty, or not of"),
        (lambda: {"value": make(BATCH, HEADS, LENGTH, 2 * SIZE)}, "values have another head size"),
        (
            lambda: dict.fromkeys(("key", "value"), make(BATCH, 1, LENGTH, SIZE)),
            "heads are broadcast without `enable_gqa`",
        ),
        (lambda: {"query": make(BATCH, HEADS, 2, SIZE), "is_causal": True}, "causal, with a mask or"),
        (lambda: {"attn_mask": _padding(*_SQUARE), "is_causal": True}, "causal, with a mask or"),
        (lambda: {"attn_mask": make(*_SQUARE)}, "the mask needs a gradient"),
        (lambda: {"attn_mask": torch.ones(*_SQUARE, dtype=torch.int32, device="hpu")}, "the mask is not of"),
        (lambda: {"attn_mask": _padding(3, 1, *_SQUARE)}, "the mask is not of"),
    ],
)
def test_call_is_left(changes: Any, reason: str) -> None:
    assert (attention.why_left(_call(**changes())) or "").startswith(reason)


def test_masks_with_gradients_are_taken_where_none_is_computed() -> None:
    with torch.no_grad():
        assert attention.why_left(_call(attn_mask=make(*_SQUARE))) is None


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_calls_that_vmap_transforms_are_left() -> None:
    caller, query = Caller(), make(3, BATCH, HEADS, LENGTH, SIZE)
    with HPUKernels().apply(caller):
        torch.vmap(caller)(query, query, query)
        assert [outcome for _, outcome in replacement.calls] == ["left to torch, torch.func transforms the call"]


def test_other_classes_of_tensors_are_left() -> None:
    class Special(torch.Tensor):
        pass

    query = make(BATCH, HEADS, LENGTH, SIZE).as_subclass(Special)
    assert (attention.why_left(_call(query=query)) or "").startswith("a tensor is of another class")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_call_in_autocast_has_torchs_dtype(dtype: torch.dtype) -> None:
    with torch.autocast("hpu", dtype=torch.bfloat16):
        plain, fused, noted = compare(*(make(BATCH, HEADS, LENGTH, SIZE, dtype=dtype) for _ in range(3)))

    assert noted == ["FusedSDPA"]
    assert plain[0].dtype == fused[0].dtype == torch.bfloat16
    assert torch.allclose(plain[0].cpu(), fused[0].cpu(), atol=1e-2)


def test_dropout_is_the_kernels() -> None:
    """Its probability reaches the kernel; random numbers of a card are others anyway."""
    caller = Caller()
    kernels: Any = bridge.optional_module("hpex.kernels")
    query = make(BATCH, HEADS, LENGTH, SIZE)
    kernel = mock.Mock(wraps=kernels.FusedSDPA.apply)
    with HPUKernels().apply(caller), mock.patch.object(attention, "_kernel", return_value=kernel):
        caller(query, query, query, None, 0.25)

    assert kernel.call_args.args[3:5] == (None, 0.25)


class _Config:
    _attn_implementation = "eager"

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)


class _OfTransformers(Caller):
    """Model with the interface of transformers' models."""

    _supports_sdpa = True

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.config = _Config(**options)

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name


@pytest.mark.parametrize(
    ("options", "chosen"),
    [({}, "sdpa"), ({"output_attentions": True}, "eager"), ({"attn_logit_softcapping": 50.0}, "eager")],
)
def test_eager_attention_of_transformers_is_switched(options: Any, chosen: str) -> None:
    model = _OfTransformers(**options)
    with HPUKernels().apply(model):
        assert model.config._attn_implementation == chosen

    assert model.config._attn_implementation == "eager"
