"""The operator that DeepSpeed's own AdamW calls by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("mode", "decay"), [("1", "0.9"), ("0", "torch.tensor([0.9], device='hpu'), True")], ids=["lazy", "eager"]
)
def test_adamw_takes_a_step(mode: str, decay: str, output_on: Callable[..., str]) -> None:
    """Weight decay is a number in lazy mode, and a tensor with a flag in eager mode."""
    program = f"""
    import torch
    tensors = [[torch.full((2,), value, device="hpu")] for value in (2.0, 1.0, 0.0, 0.0)]
    torch.ops.hpu.optimizer_adamw(*tensors, torch.tensor([-0.5], device="hpu"), 0.5, 0.75, 1.0, {decay})
    print(*(tensor.tolist() for (tensor,) in tensors[1:]))
    """

    # Means 1 and 1, so the weight is 0.9 - 0.5 * 1 / (1 + 1).
    output = output_on(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE=mode)

    numbers = [float(number) for number in output.replace("[", "").replace("]", "").replace(",", "").split()]
    assert numbers == pytest.approx([0.65, 0.65, 1, 1, 1, 1])


def test_adamw_can_skip_weight_decay(output_on: Callable[..., str]) -> None:
    """DeepSpeed disables it by this flag, outside of `no_grad`, on a master weight that is a leaf."""
    program = """
    import torch
    weight = torch.nn.Parameter(torch.ones(1, device="hpu", dtype=torch.bfloat16))
    others = [[torch.full_like(weight, value, requires_grad=False)] for value in (1.0, 0.0, 0.0)]
    decay = torch.tensor([0.5], device="hpu")
    torch.ops.hpu.optimizer_adamw(
        others[0], [weight], *others[1:], torch.tensor([-0.5], device="hpu"), 0.5, 0.75, 1.0, decay, False
    )
    print(weight.item(), weight.is_leaf)
    """

    assert output_on(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0") == "0.83203125 True"
