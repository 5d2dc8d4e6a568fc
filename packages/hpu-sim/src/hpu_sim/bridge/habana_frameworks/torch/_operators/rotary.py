"""Rotary position embedding."""

from __future__ import annotations

from typing import Final

import torch

# Mode in which an element is rotated with the next one; otherwise with the one half of the features away.
_PAIRWISE: Final = 1


def _rotate(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """Return each pair of elements (a, b) as (-b, a)."""
    if mode == _PAIRWISE:
        return torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)
    first, second = tensor.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _at_positions(table: torch.Tensor, rows: int, position_ids: torch.Tensor | None, offset: int) -> torch.Tensor:
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
) -> torch.Tensor:
    """Return the input rotated by the angles of its positions. Features beyond those of the angles stay."""
    cos, sin = (_at_positions(each, input.shape[-2], position_ids, offset) for each in (cos, sin))
    features = cos.shape[-1]
    part, rest = input[..., :features], input[..., features:]
    output = (part * cos + _rotate(part, mode) * sin).to(input.dtype)
    return torch.cat((output, rest), -1) if rest.shape[-1] else output


#: Schemas and functions.
OPERATORS: Final = (
    (
        (
            "rotary_pos_embedding(Tensor input, Tensor sin, Tensor cos, Tensor? position_ids, int offset, int mode) -> "
            "Tensor"
        ),
        rotary_pos_embedding,
    ),
)
