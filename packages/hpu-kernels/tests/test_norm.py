"""Norms."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from hpu_kernels import HPUKernels, replacement
from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

from .modules import Norm

KERNEL = HPUKernels(attention=False, optimizer=False, rotary=False, clip=False)
INPUTS = torch.linspace(-1, 2, 32).view(2, 16)


class Shifted(Norm):
    """Norm whose weight is the difference from one, as that of Gemma."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(inputs.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (1 + self.weight) * inputs * scale


class NoRMS(Norm):
    """A module of that name that computes something else."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.weight * inputs


class Gated(Norm):
    """Norm with another argument."""

    def forward(self, inputs: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(inputs) * gate


_torchs = pytest.mark.skipif(not hasattr(nn, "RMSNorm"), reason="torch 2.4")


@pytest.mark.parametrize(
    "make",
    [
        Norm,
        pytest.param(lambda: nn.RMSNorm(16), marks=_torchs, id="torch"),
        pytest.param(lambda: nn.RMSNorm(16, eps=0.1), marks=_torchs, id="torch with eps"),
    ],
)
def test_a_module_that_computes_the_same_is_replaced(make: Any) -> None:
    torch.manual_seed(0)
    module = make().to("hpu")
    kind = type(module)
    nn.init.normal_(module.weight)
    results = []
    for applied in (False, True):
        inputs = INPUTS.to("hpu").requires_grad_()
        with KERNEL.apply(module if applied else nn.Linear(1, 1, device="hpu")):
            output = module(inputs)
            noted = dict(replacement.calls)
        output.square().sum().backward()
        results.append([output.detach(), inputs.grad, module.weight.grad])
        module.weight.grad = None

    assert noted == {(type(module).__name__, "FusedRMSNorm"): 1}
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-5)
    assert type(module) is kind


@pytest.mark.parametrize("kind", [Shifted, NoRMS, Gated, lambda: nn.LayerNorm(16), lambda: nn.BatchNorm1d(16)])
def test_other_modules_stay(kind: Any) -> None:
    module = kind().to("hpu")
    before = type(module)
    with KERNEL.apply(module):
        assert type(module) is before
        noted = [outcome for _, outcome in replacement.calls]

    assert noted == (["left to torch, it computes something else"] if kind is NoRMS else [])


def test_inputs_of_another_dtype_are_the_modules() -> None:
    """With a weight in float32, its result would have another dtype."""
    module = Norm().to("hpu")
    with KERNEL.apply(module):
        assert module(INPUTS.to("hpu", torch.bfloat16)).dtype == torch.float32


def test_weights_of_a_lower_dtype_are_the_kernels() -> None:
    """As FSDP gathers them in bf16-mixed."""
    module = Norm().to("hpu", torch.bfloat16)
    nn.init.normal_(module.weight)
    inputs = INPUTS.to("hpu")
    plain = module(inputs)
    with KERNEL.apply(module):
        output = module(inputs)
        assert dict(replacement.calls) == {("Norm", "FusedRMSNorm"): 1}

    torch.testing.assert_close(output, plain, atol=1e-5, rtol=1e-5)


def test_copies_are_torchs_with_their_own_weights() -> None:
    """Also of a module to which the kernel was applied twice."""
    module = Norm().to("hpu")
    with KERNEL.apply(module), KERNEL.apply(module), torch.no_grad():
        for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301 - its own
            assert type(copied) is Norm
            copied.weight.zero_()
            assert not copied(INPUTS.to("hpu")).any()
        assert module(INPUTS.to("hpu")).any()


def test_a_plan_finds_the_norms_although_no_kernel_computes() -> None:
    outcomes: set[tuple[str, str]] = set()

    def program() -> None:
        module = Norm().to("hpu")
        with KERNEL.apply(module):
            for _ in range(2):
                with plan.step():
                    module(INPUTS.to("hpu"))
                    outcomes.update(replacement.calls)

    record_call(program, Options())

    assert outcomes == {("Norm", "FusedRMSNorm")}
