"""Operators of rotary position embedding."""

from __future__ import annotations

import pytest
import torch


def _rotate(rows: torch.Tensor, mode: int) -> torch.Tensor:
    rotated = torch.empty_like(rows)
    half = rows.shape[-1] // 2
    if mode:
        rotated[..., ::2], rotated[..., 1::2] = -rows[..., 1::2], rows[..., ::2]
    else:
        rotated[..., :half], rotated[..., half:] = -rows[..., half:], rows[..., :half]
    return rotated


def _tables() -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.rand(1, 1, 10, 6)
    return angles.sin(), angles.cos()


@pytest.mark.parametrize("mode", [0, 1], ids=["blockwise", "pairwise"])
@pytest.mark.parametrize(
    ("positions", "offset", "rows"),
    [(None, 0, [[0, 1, 2]] * 2), (None, 4, [[4, 5, 6]] * 2), ([[2, 0, 1], [7, 8, 9]], 0, [[2, 0, 1], [7, 8, 9]])],
    ids=["first", "offset", "given"],
)
def test_rows_are_rotated_by_their_angles(
    mode: int, positions: list[list[int]] | None, offset: int, rows: list[list[int]]
) -> None:
    """Positions are consecutive from an offset on, or given per row."""
    torch.manual_seed(4)
    queries = torch.randn(2, 2, 3, 6)
    sin, cos = _tables()
    ids = None if positions is None else torch.tensor(positions).to("hpu")

    output = torch.ops.hpu.rotary_pos_embedding(queries.to("hpu"), sin.to("hpu"), cos.to("hpu"), ids, offset, mode)

    own = torch.tensor(rows)
    expected = queries * cos[0, 0][own].unsqueeze(1) + _rotate(queries, mode) * sin[0, 0][own].unsqueeze(1)
    torch.testing.assert_close(output.cpu(), expected)
