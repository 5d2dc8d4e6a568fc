"""Operators of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("mode", "decay"), [("1", "0.9"), ("0", "torch.tensor([0.9], device='hpu'), True")], ids=["lazy", "eager"]
)
def test_adamw_takes_a_step(mode: str, decay: str, output_of: Callable[..., str]) -> None:
    """Weight decay is a number in lazy mode, and a tensor with a flag in eager mode."""
    program = f"""
    import torch
    tensors = [[torch.full((2,), value, device="hpu")] for value in (2.0, 1.0, 0.0, 0.0)]
    torch.ops.hpu.optimizer_adamw(*tensors, torch.tensor([-0.5], device="hpu"), 0.5, 0.75, 1.0, {decay})
    print(*(tensor.tolist() for (tensor,) in tensors[1:]))
    """

    # Means 1 and 1, so the weight is 0.9 - 0.5 * 1 / (1 + 1).
    output = output_of(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE=mode)

    numbers = [float(number) for number in output.replace("[", "").replace("]", "").replace(",", "").split()]
    assert numbers == pytest.approx([0.65, 0.65, 1, 1, 1, 1])


def test_adamw_can_skip_weight_decay(output_of: Callable[..., str]) -> None:
    """DeepSpeed disables it by this flag."""
    program = """
    import torch
    tensors = [[torch.full((1,), value, device="hpu")] for value in (0.0, 1.0, 0.0, 0.0)]
    decay = torch.tensor([0.5], device="hpu")
    torch.ops.hpu.optimizer_adamw(*tensors, torch.tensor([-0.5], device="hpu"), 0.5, 0.75, 1.0, decay, False)
    print(tensors[1][0].item())
    """

    assert output_of(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0") == "1.0"


def test_adamw_writes_parameters_that_require_a_gradient(output_of: Callable[..., str]) -> None:
    """DeepSpeed calls it outside of `no_grad`, on a master weight that is a leaf."""
    program = """
    import torch
    weight = torch.nn.Parameter(torch.ones(1, device="hpu", dtype=torch.bfloat16))
    others = [[torch.full_like(weight, value, requires_grad=False)] for value in (1.0, 0.0, 0.0)]
    decay = torch.tensor([1.0], device="hpu")
    torch.ops.hpu.optimizer_adamw(
        others[0], [weight], *others[1:], torch.tensor([-0.5], device="hpu"), 0.5, 0.75, 1.0, decay, False
    )
    print(weight.item(), weight.is_leaf)
    """

    assert output_of(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0") == "0.83203125 True"


def _lists(*numbers: float) -> list[list[torch.Tensor]]:
    """Return lists of two tensors on the device, all of whose elements are a number."""
    return [[torch.full((2,), number, device="hpu"), torch.full((3,), number, device="hpu")] for number in numbers]


def _scalar(number: float) -> torch.Tensor:
    return torch.tensor([number], device="hpu")


def test_lamb_divides_by_the_norm_beyond_the_maximum() -> None:
    """Smaller gradients stay."""
    (gradients,) = _lists(2.0)

    assert torch.ops.hpu.optimizer_lamb_fused_norm(gradients, 2.0).item() == pytest.approx(20**0.5 / 2)
    assert torch.ops.hpu.optimizer_lamb_fused_norm(gradients, 9.0).item() == 1


def test_the_phases_of_lamb_are_its_step() -> None:
    """The step of FusedLamb, which a test compares with the paper's formula."""
    from habana_frameworks.torch.hpex.optimizers import FusedLamb

    torch.manual_seed(3)
    weights = [torch.randn(shape).to("hpu") for shape in ((2, 3), (4,))]
    gradients = [torch.randn_like(weight) for weight in weights]
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    FusedLamb(parameters, lr=0.1, weight_decay=0.2).step()
    moments = [[torch.zeros_like(weight) for weight in weights] for _ in range(2)]
    norms = [[torch.zeros(1, device="hpu") for _ in weights] for _ in range(2)]
    steps = [torch.zeros_like(weight) for weight in weights]
    clip = torch.ops.hpu.optimizer_lamb_fused_norm(gradients, 1.0)
    corrections = _scalar(1 - 0.9), _scalar(1 - 0.999)

    torch.ops.hpu.optimizer_lamb_phase1(
        gradients, weights, *moments, *norms, steps, clip, 1, 0.9, 0.999, 1e-6, *corrections, 0.2
    )
    torch.ops.hpu.optimizer_lamb_phase2(weights, norms[1], norms[0], steps, _scalar(-0.1), 0.2, False)

    for weight, parameter in zip(weights, parameters, strict=True):
        torch.testing.assert_close(weight, parameter.detach())


def test_gradients_are_clipped_in_lazy_mode() -> None:
    gradients = [torch.tensor([3.0], device="hpu"), torch.tensor([4.0], device="hpu")]

    norm = torch.ops.hpu.fused_norm_lazy(gradients, _scalar(1.0), 2.0)

    assert norm.item() == pytest.approx(5)
    assert [gradient.item() for gradient in gradients] == pytest.approx([0.6, 0.8], abs=1e-5)


_MOMENTUM: Final = "optimizer_sgd_momentum(gradients, weights, buffers"
_EAGER: Final = """
import torch
def full(number):
    return torch.full((2,), number, device="hpu")
def scalar(number):
    return torch.tensor([number], device="hpu")
gradients, weights, buffers = ([full(number)] for number in (1.0, 2.0, 4.0))
"""


@pytest.mark.parametrize(
    ("call", "shown", "expected"),
    [
        # The direction is the gradient plus half of the weight.
        ("optimizer_sgd(gradients, weights, scalar(0.1), 0.5, 0.0, 0.0, False)", "weights", [1.8, 1.8]),
        # A first step takes the direction, which is 2, itself; a later one adds half of the buffer.
        (
            f"{_MOMENTUM}, scalar(0.0), scalar(0.1), scalar(0.5), 0.5, 0.0, False)",
            "weights",
            [1.8, 1.8],
        ),
        (
            f"{_MOMENTUM}, scalar(1.0), scalar(0.1), scalar(0.5), 0.5, 0.0, False)",
            "buffers",
            [4, 4],
        ),
        (
            f"{_MOMENTUM}, scalar(1.0), scalar(0.1), scalar(0.5), 0.5, 0.0, True)",
            "weights",
            [1.6, 1.6],
        ),
        # Three quarters of the average, and a quarter of the weight.
        ("optimizer_ema(weights, buffers, scalar(0.75))", "buffers", [3.5, 3.5]),
        ("fused_clip_norm(gradients, scalar(1.0), 2.0)", "gradients", [0.5**0.5] * 2),
        # The norm of the weight is twice that of the gradient.
        ("optimizer_lars(weights, gradients, [1], 0.25, 0.5, 0.0, scalar(0.1))", "gradients", [0.05, 0.05]),
        ("optimizer_lars(weights, gradients, [0], 0.25, 0.5, 0.0, scalar(0.1))", "gradients", [0.1, 0.1]),
    ],
)
def test_operators_of_eager_mode_follow_their_formula(
    call: str, shown: str, expected: list[float], output_of: Callable[..., str]
) -> None:
    program = f"{_EAGER}torch.ops.hpu.{call}\nprint(*{shown}[0].tolist())"

    output = output_of(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0")

    assert [float(number) for number in output.split()] == pytest.approx(expected, abs=1e-5)


def test_float8_moments_are_refused() -> None:
    tensors = [[torch.ones(1, device="hpu")] for _ in range(4)]
    scales = [torch.ones(1, device="hpu")]

    with pytest.raises(RuntimeError, match="`exp_avg_scales` and `exp_avg_sq_scales` must be None"):
        torch.ops.hpu.optimizer_adamw(*tensors, _scalar(-1.0), 0.9, 0.9, 1.0, 0.0, scales, scales)
