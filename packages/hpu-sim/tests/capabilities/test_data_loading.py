"""Loading data in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python 3.12 and newer warn of any fork beside threads. Torch forks its workers all the same, and they use no thread.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")


class _Numbers(Dataset[tuple[torch.Tensor, int]]):
    """Rows of equal numbers, with the number."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(index)), index


@pytest.fixture
def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What two forked workers load for a process that holds a card, in pinned memory."""
    torch.ones(1, device="hpu")
    return iter(DataLoader(_Numbers(), batch_size=3, num_workers=2, pin_memory=True, multiprocessing_context="fork"))


def test_forked_workers_load_beside_a_card(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Everything, in order."""
    assert [number for _, numbers in batches for number in numbers.tolist()] == list(range(6))


@pytest.mark.needs_torch("2.9", "loader that pins for other devices than CUDA where it was built for CUDA")
def test_batches_are_pinned(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """All tensors of them."""
    assert all(tensor.is_pinned() for batch in batches for tensor in batch)


def test_batches_move_to_the_card(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Without blocking, with their values."""
    moved = [rows.to("hpu", non_blocking=True) for rows, _ in batches]

    assert torch.cat(moved)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_card_works_after_its_process_forked(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Workers that end give nothing back."""
    list(batches)

    assert torch.ones(2, device="hpu").sum().item() == 2
