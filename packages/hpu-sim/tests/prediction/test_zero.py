"""ZeRO whose optimizer is on the host, which is taken out of a recording of the stage on the device."""

from __future__ import annotations

import pytest

from hpu_sim.plan.memory import memory_plan
from hpu_sim.prediction import zero
from hpu_sim.prediction.recording import (
    Collective,
    MemorySample,
    ModuleBytes,
    Operation,
    Phase,
    Recording,
    StepRecording,
)


def _recording() -> Recording:
    """Recording of a forward and backward pass and two operators of the optimizer, with a gather between them."""
    phases: tuple[Phase, ...] = ("forward", "backward", "optimizer", "optimizer")
    operations = [Operation("aten.op", each, "", "float32", 0, None, ((0, 64),), (), 0) for each in phases]
    samples = [MemorySample(after, "optimizer", (9, 9, 90, 1000, 0, 9, 0)) for after in (1, 4)]
    gather = Collective("allgather_base", "optimizer", 8, 64, tuple(range(8)), is_async=False, after=4)
    modules = ModuleBytes("Model", 0, 9), ModuleBytes("Model", 2, 90), ModuleBytes("", 3, 1018)
    step = StepRecording(operations, [gather], samples, graph_ends=[2, 4], peaks={"optimizer": modules})
    return Recording(("train.py",), 0, 8, 8, strategy="deepspeed_stage_2", steps=[step])


def test_the_optimizer_has_neither_memory_nor_operators_on_the_device() -> None:
    found = zero.offloaded(_recording(), "deepspeed_stage_2_offload")

    assert [each.phase for each in found.steady.operations] == ["forward", "backward"]
    memory = memory_plan(found)
    assert (memory.at_peak["optimizer state"], memory.at_peak["activations"]) == (0, 1000)
    assert memory.peak_bytes == sum(each.bytes for each in memory.modules) == 1027


def test_what_follows_the_optimizer_is_after_what_is_left() -> None:
    step = zero.offloaded(_recording(), "deepspeed_stage_2_offload").steady

    assert [each.after for each in step.collectives] == [2]
    assert [each.after for each in step.samples] == [1, 2]
    assert step.graph_ends == [2]


def test_a_plan_says_what_it_leaves_out() -> None:
    found = zero.offloaded(_recording(), "deepspeed_stage_3_offload", has_parameters=True)

    assert found.strategy == "deepspeed_stage_3_offload"
    assert zero.OFFLOADED in found.notes
    assert any("Parameters that would be offloaded" in each for each in found.notes)


@pytest.mark.parametrize(
    ("section", "is_offloaded"),
    [({}, False), ({"offload_optimizer": {"device": "cpu"}}, True), ({"offload_optimizer": {"device": "none"}}, False)],
)
def test_a_configuration_is_that_of_the_stage_on_the_device(section: dict[str, object], is_offloaded: bool) -> None:
    config = {"zero_optimization": {"stage": 2, **section}}

    assert zero.offloads(config) is is_offloaded
    assert zero.on_device(config) == {"zero_optimization": {"stage": 2}}
    assert config["zero_optimization"].keys() == {"stage", *section}
