"""Tests of the ZeRO memory estimate."""

from __future__ import annotations

from hpu_sim.report.schema import OptimizerMemory
from hpu_sim.report.zero import WORLD_SIZES, estimate_zero_stages

from .factories import make_record

_GIB = 1 << 30


def test_each_stage_partitions_more() -> None:
    """Of 20 GiB, 8 are optimizer state, 4 gradients, 4 parameters and 4 everything else."""
    memory = OptimizerMemory(4 * _GIB, 4 * _GIB, 8 * _GIB)
    stages = estimate_zero_stages(make_record(optimizer_memory=memory, totals={"peak_bytes": 20 * _GIB}))

    on_four_devices = [stage.peaks[WORLD_SIZES.index(4)] // _GIB for stage in stages]
    assert on_four_devices == [20, 20 - 6, 20 - 6 - 3, 20 - 6 - 3 - 3]
    assert [stage.number for stage in stages] == [0, 1, 2, 3]


def test_one_device_saves_nothing() -> None:
    record = make_record(optimizer_memory=OptimizerMemory(1, 1, 2), totals={"peak_bytes": 10})

    assert {stage.peaks[0] for stage in estimate_zero_stages(record)} == {10}


def test_peak_is_at_least_the_partition_itself() -> None:
    """The peak may have been before the optimizer state existed."""
    record = make_record(optimizer_memory=OptimizerMemory(100, 100, 200), totals={"peak_bytes": 300})

    assert estimate_zero_stages(record)[3].peaks[WORLD_SIZES.index(2)] == 200


def test_unknown_optimizer_memory_gives_no_estimate() -> None:
    assert estimate_zero_stages(make_record()) == ()
