"""Rotary position embedding."""

from __future__ import annotations

from typing import Any, Final

import torch

#: Mode in which an element is rotated with the next one; otherwise with the one half of the features away.
PAIRWISE: Final = 1


def rotate(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """Return each pair of elements (a, b) as (-b, a). The transpose of this map is its negative."""
    if mode == PAIRWISE:
        return torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)
    first, second = tensor.chunk(2, -1)
    return torch.cat((-second, first), -1)


def at_positions(table: torch.Tensor, rows: int, position_ids: torch.Tensor | None, offset: int) -> torch.Tensor:
    """Return the sines or cosines of the rows of a tensor.

    Args:
        table: One row of sines or cosines per position.
        rows: Number of rows of the tensor.
        position_ids: Position of each row, with a batch dimension; None for consecutive positions.
        offset: First of the consecutive positions.
    """
    if position_ids is None:
        return table[..., offset : offset + rows, :]
    flat = table.reshape(-1, table.shape[-1])
    return flat[position_ids].unsqueeze(1)


def rotary_pos_embedding(  # noqa: PLR0913, PLR0917 - the bridge's signature
    input: torch.Tensor,  # noqa: A002 - the bridge's name
    sin: torch.Tensor,
    cos: torch.Tensor,
    position_ids: torch.Tensor | None,
    offset: int,
    mode: int,
    *,
    is_backward: bool = False,
) -> torch.Tensor:
    """Return the input rotated by the angles of its positions. Features beyond those of the angles stay."""
    cos, sin = (at_positions(each, input.shape[-2], position_ids, offset) for each in (cos, sin))
    features = cos.shape[-1]
    part, rest = input[..., :features], input[..., features:]
    sine_term = -rotate(part * sin, mode) if is_backward else rotate(part, mode) * sin
    output = (part * cos + sine_term).to(input.dtype)
    return torch.cat((output, rest), -1) if rest.shape[-1] else output


def _rotary_pos_embedding_backward(*, grad_in: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return rotary_pos_embedding(grad_in, **arguments, is_backward=True)


_ARGUMENTS: Final = "Tensor sin, Tensor cos, Tensor? position_ids, int offset, int mode"

#: Schemas and functions.
OPERATORS: Final = (
    (f"rotary_pos_embedding(Tensor input, {_ARGUMENTS}) -> Tensor", rotary_pos_embedding),
    (f"rotary_pos_embedding_backward(Tensor grad_in, {_ARGUMENTS}) -> Tensor", _rotary_pos_embedding_backward),
)
