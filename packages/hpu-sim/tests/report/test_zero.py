"""What ZeRO would leave on a card."""

from __future__ import annotations

from hpu_sim.report.schema import OptimizerMemory
from hpu_sim.report.zero import WORLD_SIZES, estimate_zero_stages

from .factories import make_record

_GIB = 1 << 30


def test_each_stage_spreads_more() -> None:
    """Of 20 GiB: 8 of optimizer state, 4 of gradients, 4 of parameters and 4 of all else."""
    record = make_record(
        optimizer_memory=OptimizerMemory(4 * _GIB, 4 * _GIB, 8 * _GIB), totals={"peak_bytes": 20 * _GIB}
    )

    stages = estimate_zero_stages(record)

    at_four = [stage.peaks[WORLD_SIZES.index(4)] // _GIB for stage in stages]
    assert at_four == [20, 20 - 6, 20 - 6 - 3, 20 - 6 - 3 - 3]
    assert [stage.number for stage in stages] == [0, 1, 2, 3]


def test_one_card_gains_nothing() -> None:
    """There is nobody to share with."""
    record = make_record(optimizer_memory=OptimizerMemory(1, 1, 2), totals={"peak_bytes": 10})

    assert {stage.peaks[0] for stage in estimate_zero_stages(record)} == {10}


def test_a_share_is_never_less_than_it_is() -> None:
    """The peak may have been before the optimizer had its state."""
    record = make_record(optimizer_memory=OptimizerMemory(100, 100, 200), totals={"peak_bytes": 300})

    assert estimate_zero_stages(record)[3].peaks[WORLD_SIZES.index(2)] == 200


def test_without_optimizers_nothing_is_known() -> None:
    """As in inference, or where parameters are spread already."""
    assert estimate_zero_stages(make_record()) == ()
