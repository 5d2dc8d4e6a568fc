"""Fixtures of the tests on a simulated device, which tests/test_on_simulator.py runs once per release.

The other tests need a process without a bridge, so these are collected only if HPU_PRECISION_SIMULATED is set. To run
them directly: `HPU_PRECISION_SIMULATED=1 HPU_SIM_RELEASE=1.11.0 hpu-sim run -m pytest tests/simulated`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.warning_filters import HARMLESS

if "HPU_PRECISION_SIMULATED" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings about small test programs, and of older Lightning with newer torch."""
    for message in HARMLESS:
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture
def release() -> str:
    """Return the simulated SynapseAI release."""
    return os.environ["HPU_SIM_RELEASE"]


@pytest.fixture
def has_hmp(release: str) -> bool:
    """Return whether the release has HMP."""
    from hpu_core import releases

    row = releases.find(release)
    return row is not None and row.hmp is True


@pytest.fixture
def needs_autocast(has_hmp: bool) -> None:
    """Skip the test with HMP, which accepts one set of lists per process; another test has set it."""
    if has_hmp:
        pytest.skip("Requires: a release without HMP")


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that creates a Trainer for one device without logger, checkpoints and progress bar."""
    from hpu_core import SingleHPUStrategy
    from hpu_testing.modules import make_trainer

    def trainer(plugin: object = None, **options: Any) -> Any:
        defaults = {
            "strategy": SingleHPUStrategy(),
            "devices": 1,
            "plugins": [] if plugin is None else [plugin],
            "max_epochs": 2,
            "default_root_dir": tmp_path,
        }
        return make_trainer(**{**defaults, **options})

    return trainer
