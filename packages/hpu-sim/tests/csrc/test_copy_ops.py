"""Data between host and card."""

from __future__ import annotations

import pytest
import torch

_DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", _DTYPES, ids=repr)
def test_a_copy_converts(dtype: torch.dtype) -> None:
    """Bit by bit, on the way to the card and on the way back."""
    x = torch.tensor([0.0, 1.0, 2.0, 100.0])

    back = x.to("hpu", dtype).cpu()

    assert (back.device.type, back.dtype) == ("cpu", dtype)
    assert torch.equal(back, x.to(dtype))
    assert torch.equal(x.to(dtype).to("hpu").cpu(), x.to(dtype))
    assert torch.equal(x.to("hpu").to("cpu", dtype), x.to(dtype))


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12.0).view(3, 4)[:, ::2],
        torch.arange(3.0).expand(2, 3),
        torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels_last"],
)
def test_layouts_survive_the_way_there_and_back(x: torch.Tensor) -> None:
    """Values and, where memory is dense, strides."""
    card = x.to("hpu")

    assert card.stride() == torch.empty_like(x).stride()
    assert torch.equal(card.cpu(), x)


def test_a_part_of_a_tensor_can_be_copied() -> None:
    """In both directions, into strided memory, and a number into a row."""
    card, host = torch.zeros(4, 4, device="hpu"), torch.zeros(4, 4)

    card[::2, ::2].copy_(torch.ones(2, 2))
    host[:, 1:3].copy_(card[:, ::2])

    card[3].copy_(torch.tensor([1.0, 2.0, 3.0, 4.0])[:1])

    assert card.sum().item() == 8
    assert host.tolist() == [[0, 1, 1, 0], [0] * 4, [0, 1, 1, 0], [0] * 4]


def test_a_copy_is_a_copy() -> None:
    """Later changes are not seen, on either side, whatever memory the card really has."""
    host = torch.zeros(2)
    card = host.to("hpu", non_blocking=True)
    host.fill_(1)
    back = card.cpu()
    assert card.tolist() == [0, 0]
    card.fill_(2)

    assert back.tolist() == [0, 0]


def test_a_shape_that_does_not_fit_is_torchs_error() -> None:
    """The tensor keeps its content."""
    x = torch.zeros(2, device="hpu")

    with pytest.raises(RuntimeError, match="must match"):
        x.copy_(torch.ones(3))

    assert x.tolist() == [0, 0]


@pytest.mark.needs_torch("2.1", "_foreach_copy_")
def test_a_list_of_tensors_is_copied_from_the_host() -> None:
    targets = [torch.zeros(2, device="hpu"), torch.zeros(2, device="hpu", dtype=torch.int32)]

    torch._foreach_copy_(targets, [torch.ones(2), torch.ones(2, device="hpu")])

    assert [target.tolist() for target in targets] == [[1, 1], [1, 1]]
