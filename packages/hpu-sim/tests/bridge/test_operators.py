"""Operators of `torch.ops.hpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


@pytest.mark.needs_torch("2.1", "float8")
def test_casts_to_float8_and_back() -> None:
    """The cast to float8 also returns the absolute maximum on request."""
    rows = torch.tensor([0.5, -1.0, 2.0], device="hpu")
    scale = torch.tensor(4.0, device="hpu")

    quantized, amax = torch.ops.hpu.cast_to_fp8_v2(rows, scale, False, True, dtype=torch.float8_e4m3fn)
    back = torch.ops.hpu.cast_from_fp8(quantized, 1 / scale, torch.float32)

    assert quantized.dtype == torch.float8_e4m3fn
    assert amax.item() == 2
    assert torch.equal(back, rows)


@pytest.mark.needs_torch("2.1", "float8")
def test_a_cast_to_float8_needs_no_scale() -> None:
    """E5M2 is the default dtype, and the absolute maximum is zero unless requested."""
    quantized, amax = torch.ops.hpu.cast_to_fp8_v2(torch.tensor([3.0], device="hpu"))

    assert (quantized.dtype, amax.item()) == (torch.float8_e5m2, 0)
    assert torch.ops.hpu.cast_from_fp8(quantized, None, torch.bfloat16).tolist() == [3]


@pytest.mark.needs_torch("2.1", "float8")
def test_a_cast_to_float8_clamps_to_the_range_of_the_device() -> None:
    """Gaudi 2's E4M3 has a smaller range than torch's."""
    rows = torch.tensor([1e9, -1e9], device="hpu")

    small, _ = torch.ops.hpu.cast_to_fp8_v2(rows, None, dtype=torch.float8_e4m3fn)
    large, _ = torch.ops.hpu.cast_to_fp8_v2(rows, None, dtype=torch.float8_e5m2)

    assert small.float().tolist() == [240, -240]
    assert large.float().tolist() == [57344, -57344]
