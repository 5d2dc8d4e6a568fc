"""The largest batch that fits, and the changes that need less memory."""

from __future__ import annotations

import dataclasses

from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options
from hpu_sim.plan.search import advise, find_batch
from hpu_sim.prediction import zero
from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.recording import MemorySample, Operation, Recording, StepRecording
from hpu_sim.prediction.reserve import fitting_bytes

_GIB = 1 << 30


def _record(options: Options) -> Recording:
    """Return a recording of 8 GiB of states, and 3 GiB of activations per sample that checkpointing divides by 3."""
    size = options.batch_size or 64
    kept = 1 - min(options.checkpoint, 8) / 12
    recording = Recording(("train.py",), 0, options.world_size, options.devices, strategy="hpu_parallel")
    recording.parameters = recording.trainable = _GIB // 2
    recording.blocks = ("Block", 8)
    activations = int(size * _GIB * 3 * kept)
    sample = MemorySample(1, "forward", (2 * _GIB, 2 * _GIB, 4 * _GIB, activations, 0, 0, 0))
    flops = int(1e12) * size * (24 + min(options.checkpoint, 8))
    operation = Operation("aten.mm", "forward", "", "float32", flops, (), (), (), 0)
    inputs = (("float32", (size, 4), 16 * size),)
    recording.steps = [StepRecording([operation], samples=[sample], inputs=inputs)]
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
        sample = MemorySample(1, "forward", (2 * _GIB, 2 * _GIB, 4 * _GIB, hidden, 0, 0, 0))
        recording.steps[0].samples = [sample]
        return recording

    found = find_batch(record, Options(), "GAUDI2")

    assert found is not None
    assert found[0].batch_size == (fitting_bytes(usable_memory("GAUDI2")) - 8 * _GIB) // (_GIB >> 8)


def test_no_batch_fits_if_the_states_do_not() -> None:
    def record(options: Options) -> Recording:
        recording = _record(options)
        recording.setup.samples.append(MemorySample(0, "setup", (200 * _GIB, 0, 0, 0, 0, 0, 0)))
        return recording

    assert find_batch(record, Options(), "GAUDI2") is None


def test_the_fewest_blocks_that_fit_are_recomputed() -> None:
    """8 GiB of states and 27 samples of 3 GiB exceed the memory less the reserve by less than one block saves."""
    options = Options(devices=8, batch_size=27)
    found, _ = advise(_record, options, _record(options), "GAUDI2")
    advice = {next(iter(each.settings)): each for each in found}

    assert advice["checkpoint"].title == "activation checkpointing of 1 of 8 Block"
    assert advice["checkpoint"].fits
    assert advice["batch_size"].settings == {"batch_size": "26"}


def test_changes_that_fit_come_first_by_time_per_sample() -> None:
    options = Options(devices=8, batch_size=27)
    advice, _ = advise(_record, options, _record(options), "GAUDI2")

    fitting = [each for each in advice if each.fits]
    assert fitting
    assert list(advice[: len(fitting)]) == fitting
    known = [each for each in fitting if "offload" not in each.title]
    is_zero = [zero.is_zero(each.settings.get("strategy", "")) for each in known]
    assert is_zero == sorted(is_zero)
    for group in (False, True):
        times = [each.relative for each, found in zip(known, is_zero, strict=True) if found is group]
        assert times == sorted(times)


def test_changes_are_combined_if_none_fits_alone() -> None:
    """States of 100 GiB and activations of 100 GiB need both a strategy and recomputed blocks."""

    def record(options: Options) -> Recording:
        recording = _record(options)
        recording.parameters = recording.trainable = 8 * _GIB
        activations = int(100 * _GIB * (1 - min(options.checkpoint, 8) / 12))
        recording.steady.samples = [MemorySample(1, "forward", (32 * _GIB, 32 * _GIB, 64 * _GIB, activations, 0, 0, 0))]
        recording.steady.inputs = ()
        if "stage_3" in (options.strategy or ""):
            recording.steady.samples = [
                MemorySample(1, "forward", (4 * _GIB, 4 * _GIB, 8 * _GIB, activations, 0, 0, 0))
            ]
        return recording

    options = Options(devices=8)
    (first, *others), _ = advise(record, options, record(options), "GAUDI2")

    assert first.settings == {"strategy": "deepspeed_stage_3", "checkpoint": "8"}
    assert first.fits
    assert not any(each.fits for each in others)


def test_a_change_that_the_program_does_not_bear_is_left_out_with_its_reason() -> None:
    def record(options: Options) -> Recording:
        if options.strategy == "hpu_fsdp":
            raise ValueError("no such strategy")
        return _record(options)

    options = Options(devices=8, batch_size=27)

    advice, left_out = advise(record, options, record(options), "GAUDI2")

    assert "hpu_fsdp" not in str(advice)
    assert 'strategy="hpu_fsdp" cannot be planned: no such strategy' in left_out


def test_a_sharded_job_is_advised_to_use_more_cards() -> None:
    """The states of a job with FSDP2 are divided among twice as many boxes."""

    def record(options: Options) -> Recording:
        states = 1024 * _GIB // options.world_size
        recording = Recording(("train.py",), 0, options.world_size, options.devices, strategy="fsdp2")
        sample = MemorySample(1, "forward", (states, 0, 0, _GIB, 0, 0, 0))
        step = StepRecording(operations=_record(Options()).steady.operations, samples=[sample])
        recording.steps = [step]
        recording.setup = StepRecording(samples=[sample])
        return recording

    options = Options(devices=8)
    (first, *_), _ = advise(record, options, record(options), "GAUDI2")

    assert (first.settings, first.fits) == ({"nodes": "2"}, True)
