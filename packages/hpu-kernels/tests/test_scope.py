"""Where kernels are used, and where not."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpu_kernels import HPUKernels, scope

from . import by_name
from .modules import Attention

PLAIN = functional.scaled_dot_product_attention


def count() -> int:
    """Return the number of calls that the kernel has computed."""
    return scope.calls["scaled_dot_product_attention", "FusedSDPA"]


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Attention(), Attention()).to("hpu")


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(2, 6, 16).to("hpu")


def test_only_the_model_is_changed(model: nn.Sequential, inputs: torch.Tensor) -> None:
    other = copy.deepcopy(model)
    with HPUKernels().apply(model):
        assert torch.allclose(model(inputs).cpu(), other(inputs).cpu(), atol=1e-6)
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


def test_an_error_in_the_model_ends_its_scope(model: nn.Sequential) -> None:
    with HPUKernels().apply(model):
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 6, 3).to("hpu"))
        assert not scope.is_active()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("whole", [True, False], ids=["module", "function"])
def test_a_checkpoint_recomputes_with_the_kernel(
    model: nn.Sequential, inputs: torch.Tensor, use_reentrant: bool, whole: bool
) -> None:
    """Also a function of a module, which runs outside of the module in the backward pass."""
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


def test_other_models_recompute_without_the_kernel(model: nn.Sequential, inputs: torch.Tensor) -> None:
    """A checkpoint refuses another number of saved tensors than in its forward pass."""
    other = copy.deepcopy(model)
    with HPUKernels().apply(model):
        model(inputs)
        checkpoint(other, inputs.requires_grad_(), use_reentrant=False).sum().backward()
        assert count() == 2


def test_copies_and_state_dicts_stay(model: nn.Sequential, inputs: torch.Tensor) -> None:
    names = list(model.state_dict())
    with HPUKernels().apply(model):
        copied = copy.deepcopy(model)
        with torch.no_grad():
            next(copied.parameters()).zero_()
        assert list(model.state_dict()) == names
        assert not torch.equal(model(inputs), copied(inputs))


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
