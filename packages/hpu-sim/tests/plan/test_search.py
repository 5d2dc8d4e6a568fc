"""The largest batch that fits, and what is said of one that does not."""

from __future__ import annotations

import dataclasses

import pytest

from hpu_sim.plan.memory import advice, memory_plan
from hpu_sim.plan.options import Options
from hpu_sim.plan.search import find_batch
from hpu_sim.prediction.hardware import fitting_bytes, usable_memory
from hpu_sim.prediction.recording import ModuleBytes, Operation, Recording, StepRecording, TensorInfo

_GIB = 1 << 30


def _record(options: Options) -> Recording:
    """Return a recording of 8 GiB of states, and 3 GiB of activations per sample that checkpointing divides by 3."""
    size = options.batch_size or 64
    kept = 1 - min(options.checkpoint, 8) / 12
    recording = Recording(world_size=options.world_size, devices=options.devices, strategy="hpu_parallel")
    recording.parameters = recording.trainable = _GIB // 2
    recording.blocks = ("Block", 8)
    activations = int(size * _GIB * 3 * kept)
    peak = tuple(ModuleBytes("", index, size) for index, size in enumerate((2 * _GIB, 2 * _GIB, 4 * _GIB, activations)))
    flops = int(1e12) * size * (24 + min(options.checkpoint, 8))
    operation = Operation("aten.mm", "forward", "", "float32", flops, (), (), 0)
    inputs = (TensorInfo("float32", (size, 4), 16 * size),)
    recording.steps = [StepRecording([operation], peaks={"forward": peak}, inputs=inputs)]
    return recording


def test_the_largest_batch_fits_and_the_next_one_does_not() -> None:
    found = find_batch(_record, Options(), "GAUDI2")

    assert found is not None
    options, recording = found
    assert options.batch_size == (fitting_bytes(usable_memory("GAUDI2")) - 8 * _GIB) // (3 * _GIB)
    assert memory_plan(recording).peak_bytes <= fitting_bytes(usable_memory("GAUDI2"))


def test_a_peak_that_depends_on_the_batch_only_when_it_is_large_finds_it() -> None:
    """A copy of the parameters hides the activations of small batches: the first two plans have the same peak."""

    def record(options: Options) -> Recording:
        recording = _record(dataclasses.replace(options, batch_size=1))
        hidden = max(40 * _GIB, (options.batch_size or 1) * (_GIB >> 8))
        sizes = 2 * _GIB, 2 * _GIB, 4 * _GIB, hidden
        recording.steps[0].peaks["forward"] = tuple(ModuleBytes("", *each) for each in enumerate(sizes))
        return recording

    found = find_batch(record, Options(), "GAUDI2")

    assert found is not None
    assert found[0].batch_size == (fitting_bytes(usable_memory("GAUDI2")) - 8 * _GIB) // (_GIB >> 8)


def test_no_batch_fits_if_the_states_do_not() -> None:
    def record(options: Options) -> Recording:
        recording = _record(options)
        recording.setup.peaks["setup"] = (ModuleBytes("", 0, 200 * _GIB),)
        return recording

    assert find_batch(record, Options(), "GAUDI2") is None


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("hpu_parallel", ("`--strategy hpu_fsdp` or `deepspeed_stage_3` divides them", "recomputes those of 8 Block")),
        ("hpu_fsdp", ("more cards (`--nodes`) divide them further",)),
    ],
)
def test_what_does_not_fit_is_told_what_needs_less(strategy: str, words: tuple[str, ...]) -> None:
    recording = _record(Options(devices=8, batch_size=64))
    recording.strategy = strategy

    text = advice(recording, memory_plan(recording), usable_memory("GAUDI2"))

    assert "Parameters, gradients, optimizer state and buffers are 8 GiB" in text
    assert all(each in text for each in words)


def test_a_peak_of_the_optimizer_is_told_which_one_needs_less() -> None:
    recording = _record(Options(devices=8, batch_size=64))
    memory = dataclasses.replace(memory_plan(recording), peak_phase="optimizer")

    text = advice(recording, memory, usable_memory("GAUDI2"))

    assert (
        "What operators of the optimizer's step hold is 192 GiB: `FusedAdamW` of the bridge is one kernel, and a "
        in text
    )
    assert "--recompute" not in text


def test_what_fits_needs_no_advice() -> None:
    recording = _record(Options(batch_size=8))

    assert not advice(recording, memory_plan(recording), usable_memory("GAUDI2"))
