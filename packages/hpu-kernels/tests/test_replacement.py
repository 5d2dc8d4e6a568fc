"""Functions in whose place others are, and when."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpu_kernels import HPUKernels, replacement

from . import by_name
from .modules import Attention

PLAIN = functional.scaled_dot_product_attention


def count() -> int:
    """Return the number of calls that the kernel has computed."""
    return replacement.calls["scaled_dot_product_attention", "FusedSDPA", ""]


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Attention(), Attention()).to("hpu")


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(2, 6, 16).to("hpu")


def test_calls_compute_the_same_until_they_are_undone(model: nn.Sequential, inputs: torch.Tensor) -> None:
    plain = model(inputs)
    with HPUKernels().apply(model):
        assert torch.allclose(model(inputs).cpu(), plain.cpu(), atol=1e-6)
        assert count() == 2

    assert functional.scaled_dot_product_attention is PLAIN


def test_undo_waits_for_other_applications(model: nn.Sequential, inputs: torch.Tensor) -> None:
    """Applied twice, the model computes each call once."""
    first, second = HPUKernels().apply(model), HPUKernels().apply(model)
    first.undo()
    first.undo()
    model(inputs)
    assert count() == 2

    second.undo()
    assert functional.scaled_dot_product_attention is PLAIN
    assert count() == 0


def test_what_another_library_has_wrapped_meanwhile_stays_and_is_torchs(
    model: nn.Sequential, inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "scaled_dot_product_attention", PLAIN)
    with HPUKernels().apply(model):
        wrapper = functools.partial(functional.scaled_dot_product_attention)
        functional.scaled_dot_product_attention = wrapper
    model(inputs)

    assert functional.scaled_dot_product_attention is wrapper
    assert count() == 0


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("whole", [True, False], ids=["module", "function"])
def test_a_checkpoint_recomputes_with_the_kernel(
    model: nn.Sequential, inputs: torch.Tensor, use_reentrant: bool, whole: bool
) -> None:
    layer: Any = model[0]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            function = self.layer if whole else self.layer.attend
            result: torch.Tensor = checkpoint(function, inputs, use_reentrant=use_reentrant)
            return result

    outer = Outer()
    with HPUKernels().apply(outer):
        outer(inputs.requires_grad_()).sum().backward()
        assert count() == 2


def test_a_function_that_a_file_imports_by_name_is_replaced(inputs: torch.Tensor) -> None:
    model = by_name.ByName().to("hpu")
    with HPUKernels().apply(model):
        model(inputs)
        assert count() == 1

    assert vars(by_name)["scaled_dot_product_attention"] is PLAIN


def test_a_model_on_the_cpu_stays(inputs: torch.Tensor) -> None:
    with HPUKernels().apply(Attention()) as application:
        assert functional.scaled_dot_product_attention is PLAIN

    assert application.rows == ()


def test_the_variable_switches_all_off(model: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_KERNELS", "0")
    with HPUKernels().apply(model):
        assert functional.scaled_dot_product_attention is PLAIN


@pytest.mark.parametrize(
    ("result", "same"),
    [(torch.ones(2), True), (torch.zeros(2), False), (torch.ones(1), False), ((torch.ones(2),) * 2, False), (1, False)],
)
def test_results_are_compared(result: Any, same: bool) -> None:
    assert replacement.is_same(lambda: result, lambda: torch.ones(2)) is same
