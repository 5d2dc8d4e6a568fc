"""The largest batch that fits, and the changes that need less memory."""

from __future__ import annotations

from hpu_sim.plan.hardware import usable_memory
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.recording import MemorySample, Operation, Recording, StepRecording
from hpu_sim.plan.search import advise, find_batch
from hpu_sim.plan.session import Options

_GIB = 1 << 30


def _record(options: Options) -> Recording:
    """Return a recording of 8 GiB of states, and 3 GiB of activations per sample that checkpointing divides by 3."""
    size = options.batch_size or 64
    recording = Recording(("train.py",), 0, options.world_size, options.devices, strategy="hpu_parallel")
    recording.parameters = recording.trainable = _GIB // 2
    activations = size * _GIB * (1 if options.checkpoint else 3)
    sample = MemorySample(1, "forward", (2 * _GIB, 2 * _GIB, 4 * _GIB, activations, 0, 0, 0))
    flops = 4 if options.checkpoint else 3
    operation = Operation("aten.mm", "forward", "", "float32", flops, None, (), (), 0)
    inputs = (("float32", (size, 4), 16 * size),)
    recording.steps = [StepRecording([operation], samples=[sample], inputs=inputs)]
    return recording


def test_the_largest_batch_fits_and_the_next_one_does_not() -> None:
    found = find_batch(_record, Options(), "GAUDI2")

    assert found is not None
    options, recording = found
    assert options.batch_size == (usable_memory("GAUDI2") - 8 * _GIB) // (3 * _GIB)
    assert memory_plan(recording).peak_bytes <= usable_memory("GAUDI2")


def test_no_batch_fits_if_the_states_do_not() -> None:
    def record(options: Options) -> Recording:
        recording = _record(options)
        recording.setup.samples.append(MemorySample(0, "setup", (200 * _GIB, 0, 0, 0, 0, 0, 0)))
        return recording

    assert find_batch(record, Options(), "GAUDI2") is None


def test_advice_is_planned_and_names_its_cost() -> None:
    options = Options(devices=8)
    advice = {each.title: each for each in advise(_record, options, _record(options), "GAUDI2")}

    assert not advice['strategy="deepspeed_stage_3"'].fits
    assert advice["activation checkpointing of repeated blocks"].fits
    assert advice["activation checkpointing of repeated blocks"].cost == "33% more floating-point operations"
    assert advice["batch of 32 per card instead of 64"].peak_bytes == (8 + 3 * 32) * _GIB
