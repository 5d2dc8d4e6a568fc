"""Data loading in worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python >= 3.12 warns about forks in multithreaded processes. torch's workers are such forks, and use no threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")


class _Numbers(Dataset[tuple[torch.Tensor, int]]):
    """Dataset of rows of equal numbers, labeled with the number."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(index)), index


@pytest.fixture
def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return pinned batches of two forked workers of a process that has acquired a device."""
    torch.ones(1, device="hpu")
    return iter(DataLoader(_Numbers(), batch_size=3, num_workers=2, pin_memory=True, multiprocessing_context="fork"))


def test_forked_workers_load_data(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """All batches come in order, and workers that exit do not release the device."""
    moved = [(rows.to("hpu", non_blocking=True), numbers) for rows, numbers in batches]

    assert torch.cat([rows for rows, _ in moved])[:, 0].tolist() == list(range(6))
    assert torch.cat([numbers for _, numbers in moved]).tolist() == list(range(6))


@pytest.mark.needs_torch("2.9", "loader that pins for other devices than CUDA where it was built for CUDA")
def test_batches_are_pinned(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    assert all(tensor.is_pinned() for batch in batches for tensor in batch)
