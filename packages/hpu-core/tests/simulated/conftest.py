"""Starts the simulator for these tests; tests/test_on_simulator.py runs them once in each mode.

A process has one bridge in one mode for good, and the tests around this folder need a process without any. By hand:
`HPU_CORE_SIMULATE=lazy pytest packages/hpu-core/tests/simulated`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_MODES = {"lazy": "1", "eager": "0"}
_MODE = os.environ.get("HPU_CORE_SIMULATE")

if _MODE is None:
    collect_ignore_glob = ["test_*.py"]
else:
    os.environ["PT_HPU_LAZY_MODE"] = _MODES[_MODE]
    from packaging.version import Version

    import hpu_sim
    from hpu_core import frameworks

    if frameworks.current().version < Version("2.1"):
        # Where there is a card, Lightning 2.0 imports the bridge's old mixed precision, which newer bridges have not.
        frameworks.current().pytorch()

    # Two cards, so that asking for both is refused by what is tested and not for want of one.
    hpu_sim.activate(devices=2, release=os.environ.get("HPU_SIM_RELEASE"))


def pytest_configure(config: pytest.Config) -> None:
    """Let pass what Lightning and torch say about programs of this size, and what old ones say on a new torch."""
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The '.*_dataloader' does not have many workers",
        "The number of training batches .* is smaller than the logging interval",
        "Checkpoint directory .* exists and is not empty",
        "`isinstance.treespec, LeafSpec.` is deprecated",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    """Makes a Trainer for one simulated card that writes and shows nothing; the arguments are the Trainer's."""
    from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks

    def trainer(**options: Any) -> Any:
        defaults = {
            "accelerator": HPUAccelerator(),
            "strategy": SingleHPUStrategy(),
            "devices": 1,
            "max_epochs": 1,
            "default_root_dir": tmp_path,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return frameworks.current().pytorch().Trainer(**{**defaults, **options})

    return trainer


@pytest.fixture
def cpu_trainer(trainer: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a Trainer like the others, for the CPU."""

    def cpu_trainer(**options: Any) -> Any:
        return trainer(accelerator="cpu", strategy="auto", **options)

    return cpu_trainer
