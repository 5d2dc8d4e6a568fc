"""ZeRO around a recording of data-parallel training."""

from __future__ import annotations

import pytest

from hpu_sim.plan import zero
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.recording import MemorySample, Operation, Recording, StepRecording

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
    weights, gradients, optimizer, _ = zero.states(_recording(ranks), zero.Zero(stage, offload=False))

    assert weights + gradients + optimizer == pytest.approx(measured, rel=1e-6)


def test_full_precision_has_no_second_copy_of_the_parameters() -> None:
    weights, gradients, optimizer, _ = zero.states(_recording(1, "32-true"), zero.Zero(2, offload=False))

    assert weights + gradients + optimizer == 16 * _MEASURED_PARAMETERS


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
