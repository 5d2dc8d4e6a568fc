"""Clipping by norm."""

from typing import Any

import pytest
import torch
from torch import nn

from hpu_kernels import HPUKernels, replacement

from .modules import Classifier, losses_of

PLAIN = nn.utils.clip_grad_norm_


def make_model(*dtypes: torch.dtype) -> nn.Module:
    """Return a model with gradients."""
    torch.manual_seed(0)
    model = nn.ParameterList(torch.randn(3).to("hpu", each) for each in dtypes or (torch.float32,) * 2)
    for parameter in model.parameters():
        parameter.grad = torch.randn(3).to("hpu", parameter.dtype)
    return model


def clip(model: nn.Module, *args: Any, **options: Any) -> tuple[list[torch.Tensor], list[str]]:
    """Return norm and gradients, and what was noted."""
    with HPUKernels(attention=False).apply(model):
        norm = nn.utils.clip_grad_norm_(list(model.parameters()), *args, **options)
        noted = [outcome for _, outcome in replacement.calls]
    return [norm.cpu(), *(each.grad.float().cpu() for each in model.parameters() if each.grad is not None)], noted


@pytest.mark.parametrize("maximum", [0.5, 100.0])
def test_clipping_is_torchs(maximum: float) -> None:
    plain, fused = make_model(), make_model()
    norm = PLAIN(plain.parameters(), maximum)

    result, noted = clip(fused, maximum)

    assert noted == ["FusedClipNorm"]
    expected = [norm.cpu(), *(each.grad.cpu() for each in plain.parameters() if each.grad is not None)]
    for each, other in zip(result, expected, strict=True):
        torch.testing.assert_close(each, other)
    assert nn.utils.clip_grad_norm_ is PLAIN


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((1.0, 1.0), {}, "another norm"),
        ((float("inf"),), {}, "the maximum is no finite number"),
    ],
)
def test_call_is_left(arguments: Any, options: Any, reason: str) -> None:
    model = make_model()

    assert clip(model, *arguments, **options)[1][0].startswith(f"left to torch, {reason}")


def test_an_infinite_norm_is_an_error_if_that_is_asked_for() -> None:
    """As Fabric does."""
    model = make_model()
    assert clip(model, 1.0, error_if_nonfinite=True)[1] == ["FusedClipNorm"]
    next(model.parameters()).grad = torch.tensor([torch.inf, 1.0, 2.0], device="hpu")
    with pytest.raises(RuntimeError, match="non-finite"):
        clip(model, 1.0, error_if_nonfinite=True)


def test_gradients_of_several_dtypes_are_left() -> None:
    model = make_model(torch.float32, torch.bfloat16)

    assert clip(model, 1.0)[1] == ["left to torch, gradients of several dtypes or devices, or none"]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_trainer_clips_by_it(precision: str) -> None:
    options: dict[str, Any] = {"gradient_clip_val": 0.01, "precision": precision}
    kernels = HPUKernels(attention=False, optimizer=False, norm=False, rotary=False)
    counts: list[int] = []

    class Counting(Classifier):
        def on_train_end(self) -> None:
            counts.extend(replacement.calls.values())

    plain, fused = losses_of(Classifier(), **options), losses_of(Counting(), kernels, **options)

    assert counts == [4]
    assert torch.allclose(plain, fused, atol=1e-5)
