"""ZeRO around a recording of data-parallel training."""

from __future__ import annotations

import pytest

from hpu_sim.plan.memory import memory_plan
from hpu_sim.prediction import zero
from hpu_sim.prediction.recording import MemorySample, Operation, Recording, StepRecording

_MEASURED_PARAMETERS = 20_020_000


def _recording(ranks: int, precision: str = "bf16-mixed") -> Recording:
    recording = Recording(("train.py",), 0, ranks, min(ranks, 8), precision=precision)
    recording.parameters = recording.trainable = _MEASURED_PARAMETERS
    recording.largest_module = 1_001_000
    operations = [
        Operation("aten.op", phase, "", "bfloat16", 0, None, ((0, 64),), (), 0)
        for phase in ("forward", "backward", "optimizer")
    ]
    samples = [MemorySample(1, "forward", (9, 9, 9, 1000, 0, 9, 0))]
    recording.steps = [StepRecording(operations, samples=samples)]
    return recording


@pytest.mark.parametrize(("stage", "ranks", "measured"), [(1, 4, 110_110_000), (2, 2, 180_180_000), (3, 4, 80_080_000)])
def test_states_are_those_of_the_memory_page(stage: int, ranks: int, measured: int) -> None:
    """The bytes without buckets are those that hpu-deepspeed measures on the simulator."""
    states = zero.states_of(_recording(ranks))
    *divided, _ = zero.divide(states, zero.Zero(stage, offload=False), ranks)

    assert sum(divided) == pytest.approx(measured, rel=1e-6)


def test_full_precision_has_no_second_copy_of_the_parameters() -> None:
    states = zero.states_of(_recording(1, "32-true"))

    assert states.total == 16 * _MEASURED_PARAMETERS


def test_activations_are_those_of_the_recording() -> None:
    planned = memory_plan(zero.apply(_recording(8), "deepspeed_stage_2"))

    assert planned.at_peak["activations"] == 1000


def test_offload_leaves_the_optimizer_on_the_host() -> None:
    recording = zero.apply(_recording(2), "deepspeed_stage_2_offload")

    assert memory_plan(recording).at_peak["optimizer state"] == 0
    assert {each.phase for each in recording.steady.operations} == {"forward", "backward"}


def test_stage_3_gathers_the_parameters_twice() -> None:
    collectives = zero.apply(_recording(4), "deepspeed_stage_3").steady.collectives

    assert [(each.name, each.phase) for each in collectives] == [
        ("allgather_base", "forward"),
        ("allgather_base", "backward"),
        ("reduce_scatter_base", "backward"),
    ]
    assert {each.total_bytes for each in collectives} == {2 * _MEASURED_PARAMETERS}


def test_stage_2_gathers_the_updated_parameters() -> None:
    collectives = zero.apply(_recording(4), "deepspeed_stage_2").steady.collectives

    assert [(each.name, each.phase) for each in collectives] == [
        ("reduce_scatter_base", "backward"),
        ("allgather_base", "optimizer"),
    ]


def test_each_stage_divides_more_of_a_peak() -> None:
    """Of 20 GiB, 4 are parameters, 4 gradients, 8 optimizer state and 4 everything else."""
    states = zero.States(4 << 30, 4 << 30, 8 << 30)
    bucket = 4 * 200_000_000

    peaks = zero.peaks(states, 20 << 30, 4)

    assert [peaks[0], *(peak - 2 * bucket for peak in peaks[1:])] == [20 << 30, 11 << 30, 11 << 30, 8 << 30]


def test_one_device_has_all_states_and_the_buckets() -> None:
    assert zero.peaks(zero.States(10, 10, 20), 50, 1) == (50, 60, 60, 70)


def test_a_peak_before_the_optimizer_state_existed_is_not_below_the_divided_states() -> None:
    states = zero.States(100, 100, 200)

    assert zero.peaks(states, 300, 2)[3] == sum(zero.divide(states, zero.Zero(3, offload=False), 2))
