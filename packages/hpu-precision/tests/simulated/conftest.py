"""Starts the simulator for these tests; tests/test_on_simulator.py runs them once for each release.

A process has one bridge of one release for good, and the tests around this folder need a process without any. By hand:
`HPU_PRECISION_SIMULATE=1.11.0 pytest packages/hpu-precision/tests/simulated`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_RELEASE = os.environ.get("HPU_PRECISION_SIMULATE")

if _RELEASE is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from packaging.version import Version

    import hpu_sim
    from hpu_core import frameworks

    if frameworks.current().version < Version("2.1"):
        # Where there is a card, Lightning 2.0 imports HMP, which newer bridges have not.
        frameworks.current().pytorch()

    hpu_sim.activate(devices=1, release=_RELEASE)


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
def release() -> str:
    """The SynapseAI release that is played."""
    assert _RELEASE is not None
    return _RELEASE


@pytest.fixture
def has_hmp(release: str) -> bool:
    """Whether the release has HMP."""
    from hpu_core import releases

    row = releases.find(release)
    return row is not None and row.hmp is True


@pytest.fixture
def needs_autocast(has_hmp: bool) -> None:
    """Skips where HMP casts: it takes one set of lists in a process, which another test has given it."""
    if has_hmp:
        pytest.skip("Requires: a release without HMP")


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    """Makes a Trainer for one simulated card that writes and shows nothing; the arguments are the Trainer's."""
    from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks

    def trainer(plugin: object = None, **options: Any) -> Any:
        defaults = {
            "accelerator": HPUAccelerator(),
            "strategy": SingleHPUStrategy(),
            "devices": 1,
            "plugins": [] if plugin is None else [plugin],
            "max_epochs": 2,
            "default_root_dir": tmp_path,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return frameworks.current().pytorch().Trainer(**{**defaults, **options})

    return trainer
