"""Data and a Trainer for two ranks, as in most tests."""

from typing import Any

from hpu_ddp import HPUDDPStrategy
from hpu_testing import modules

BATCH_SIZE = 4


def make_loader(batches: int = modules.BATCHES, ranks: int = 2) -> modules.Loader:
    """Return a DataLoader of points, (4, 4) per batch, and their classes, (4,), with `batches` batches per rank."""
    return modules.make_loader(batches, BATCH_SIZE, ranks)


def make_trainer(**options: Any) -> Any:
    """Return a Trainer with HPUDDPStrategy, or the strategy in `options`."""
    return modules.make_trainer(**{"strategy": HPUDDPStrategy(), **options})
