"""Starts the simulator for these tests; tests/test_on_simulator.py runs them once for each release.

A process has one bridge of one release for good, and the tests around this folder need a process without any. By hand:
`HPU_PROFILER_SIMULATE=1.19.0 pytest packages/hpu-profiler/tests/simulated`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_RELEASE = os.environ.get("HPU_PROFILER_SIMULATE")

if _RELEASE is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # Lightning first, and with it torch's names for activities: up to 1.19 the bridge puts others in their place.
    from hpu_core import frameworks

    frameworks.current().pytorch()

    import hpu_sim

    hpu_sim.activate(devices=1, release=_RELEASE)


@pytest.fixture
def on_card(tmp_path: Path) -> Callable[..., Any]:
    """Makes a Trainer for one simulated card; the arguments are a profiler and the Trainer's."""
    from hpu_core import HPUAccelerator, SingleHPUStrategy

    from ..models import trainer  # noqa: TID252 - pytest gives the folder of tests no absolute name

    def make(profiler: Any, **options: Any) -> Any:
        card = {"accelerator": HPUAccelerator(), "strategy": SingleHPUStrategy()}
        return trainer(tmp_path, profiler, **{**card, **options})

    return make
