"""Advice is right: a program to which it is applied fits, with the peak that the advice names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import pytest

from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options
from hpu_sim.plan.search import advise
from hpu_sim.plan.worker import Worker
from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.reserve import verdict

# First, because the import of Lightning takes seconds.
pytest.importorskip("hpu_core")
# Lightning 2.0 imports HMP, which the bridge of the simulated release does not have.
pytest.importorskip("lightning", exc_type=ImportError)

pytestmark = [
    pytest.mark.needs_torch("2.8", "interfaces for the planner"),
    pytest.mark.usefixtures("without_device"),
    # Those of libraries, in processes of the program.
    pytest.mark.filterwarnings("default"),
]

_PROGRAM: Final = str(Path(__file__).with_name("wide_model.py"))


def _worker(settings: dict[str, str]) -> Worker:
    """Return the recorder of a program whose own text has the settings."""
    return Worker(_PROGRAM, [f"--{name}={value}" for name, value in settings.items()])


@pytest.mark.parametrize(
    ("batch", "hidden", "nodes", "expected"),
    [
        pytest.param("24", "4096", 1, {"checkpoint", "batch_size"}, id="activations"),
        pytest.param("1", "16384", 4, {"strategy", "precision"}, id="states", marks=pytest.mark.slow),
        pytest.param("5", "16384", 4, {"strategy", "checkpoint"}, id="combination", marks=pytest.mark.slow),
    ],
)
def test_a_program_with_the_advice_fits(batch: str, hidden: str, nodes: int, expected: set[str]) -> None:
    own = {"batch_size": batch, "hidden": hidden}
    options = Options(devices=2 if nodes > 1 else 1, nodes=nodes)
    record = functools.cache(_worker(own).record)
    recording = record(options)
    assert memory_plan(recording).peak_bytes > usable_memory("GAUDI2")

    found, left_out = advise(record, options, recording, "GAUDI2")
    fitting = [each for each in found if each.fits]

    assert expected <= {name for each in fitting for name in each.settings}, left_out
    for advice in fitting:
        peak = memory_plan(_worker({**own, **advice.settings}).record(options)).peak_bytes
        assert verdict(peak, usable_memory("GAUDI2")) == "fits", advice.title
        assert peak == pytest.approx(advice.peak_bytes, rel=0.01), advice.title
