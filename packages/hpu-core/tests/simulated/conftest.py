"""Fixtures for tests on simulated devices, which tests/test_on_simulator.py runs in processes of their own.

The other tests need a process without a bridge. To run these by hand:
`HPU_SIM_DEVICES=2 PT_HPU_LAZY_MODE=1 pytest packages/hpu-core/tests/simulated`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.warning_filters import HARMLESS

if not os.environ.get("HPU_SIM_DEVICES"):
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of Lightning and torch about programs of this size, and of old versions on a new torch."""
    for message in HARMLESS:
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    """Construct a quiet Trainer for one simulated device: `trainer(max_epochs=2)`."""
    from hpu_core import SingleHPUStrategy
    from hpu_testing.modules import make_trainer

    def make(**options: Any) -> Any:
        return make_trainer(**{"strategy": SingleHPUStrategy(), "devices": 1, "default_root_dir": tmp_path, **options})

    return make


@pytest.fixture
def cpu_trainer(trainer: Callable[..., Any]) -> Callable[..., Any]:
    """Construct the same Trainer for the CPU."""

    def make(**options: Any) -> Any:
        return trainer(accelerator="cpu", strategy="auto", **options)

    return make
