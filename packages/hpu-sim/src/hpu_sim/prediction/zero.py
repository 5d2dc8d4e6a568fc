"""ZeRO as a model: the states and collectives of DeepSpeed around the recorded forward and backward pass.

DeepSpeed reads the data of tensors, so it cannot run on a fake device. In 16-bit precision its states are those that
``packages/hpu-deepspeed/docs/memory.md`` measures on the simulator: 2 bytes of parameters, 2 of gradients and 12 of
optimizer per parameter. A stage divides some of them by the number of ranks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction.recording import Collective, MemorySample, StepRecording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.prediction.recording import Phase, Recording

# Elements of the buckets of Lightning's DeepSpeedStrategy for reducing gradients and for gathering parameters.
_BUCKET: Final = 200_000_000
# Bytes per parameter of parameters and gradients, and of the optimizer: Adam's two states, and in 16-bit precision the
# parameters in float32.
_STATES_16: Final = (2, 12)
_STATES_32: Final = (4, 8)


@dataclass(frozen=True)
class Zero:
    """A stage of ZeRO.

    Attributes:
        stage: 1, 2 or 3.
        offload: Whether the optimizer is on the host.
    """

    stage: int
    offload: bool


#: Stages by the names of Lightning's strategies.
STAGES: Final = {
    "deepspeed": Zero(2, offload=False),
    "deepspeed_stage_1": Zero(1, offload=False),
    "deepspeed_stage_2": Zero(2, offload=False),
    "deepspeed_stage_2_offload": Zero(2, offload=True),
    "deepspeed_stage_3": Zero(3, offload=False),
    "deepspeed_stage_3_offload": Zero(3, offload=True),
}


def apply(recording: Recording, name: str) -> Recording:
    """Return a recording of data-parallel training with the states and collectives of a stage instead."""
    zero = STAGES[name]
    note = (
        "ZeRO is modelled, not executed: states as on hpu-deepspeed's memory page, buckets of 200 million elements, "
        "forward and backward as recorded."
    )
    notes = [*recording.notes, note]
    if zero.offload:
        notes.append("The time of the optimizer on the host and of its transfers is not predicted.")
    return dataclasses.replace(
        recording,
        strategy=name,
        # Only the last step, in which the memory of every tensor has its category.
        setup=StepRecording(),
        steps=[_step(recording, recording.steady, zero)],
        notes=notes,
    )


@dataclass(frozen=True)
class States:
    """Bytes of replicated states.

    Attributes:
        parameters: Parameters.
        gradients: Gradients of those that are trained.
        optimizer: State of the optimizer.
        largest_module: Parameters of the largest module.
        item: Bytes of an element.
    """

    parameters: int
    gradients: int
    optimizer: int
    largest_module: int = 0
    item: int = 4

    @property
    def total(self) -> int:
        """All that a stage may divide."""
        return self.parameters + self.gradients + self.optimizer


def divide(states: States, zero: Zero, ranks: int) -> tuple[int, int, int, int]:
    """Return the bytes of parameters, gradients, optimizer and buckets on one rank.

    Every stage keeps only the rank's part of the gradients: DeepSpeed 0.19 does so in stage 1 as well.
    """
    parameters, gradients = states.parameters, states.gradients // ranks
    optimizer = 0 if zero.offload else states.optimizer // ranks
    bucket = states.item * _BUCKET
    buckets = min(bucket, states.gradients)
    if zero.stage == 3:  # noqa: PLR2004 - the stage's name
        # The largest module and the next one are gathered while it runs.
        buckets += min(max(2 * states.largest_module, bucket), parameters)
        parameters //= ranks
    elif ranks > 1:
        buckets += min(bucket, states.gradients)
    return parameters, gradients, optimizer, buckets


def peaks(states: States, peak: int, ranks: int) -> tuple[int, ...]:
    """Return the peak without ZeRO and in stages 1 to 3, with all other memory as at the peak of a run.

    That peak may have been before the optimizer had its state.
    """
    others = max(peak - states.total, 0)
    return (peak, *(others + sum(divide(states, Zero(stage, offload=False), ranks)) for stage in (1, 2, 3)))


def states_of(recording: Recording) -> States:
    """Return the states of data-parallel training with Adam."""
    item, state = _STATES_32 if recording.precision.startswith("32") else _STATES_16
    return States(
        item * recording.parameters,
        item * recording.trainable,
        state * recording.trainable,
        item * recording.largest_module,
        item,
    )


def _samples(recording: Recording, step: StepRecording, zero: Zero) -> list[MemorySample]:
    weights, gradients, optimizer, buckets = divide(states_of(recording), zero, recording.world_size)
    return [
        MemorySample(
            sample.after,
            sample.phase,
            (weights, gradients, optimizer, *_activations(sample, recording), buckets, sample.by_category[6]),
        )
        for sample in step.samples
    ]


def _activations(sample: MemorySample, recording: Recording) -> tuple[int, int]:
    """Return activations and temporaries; those of the optimizer are divided among the ranks."""
    _, _, _, activations, temporaries, _, _ = sample.by_category
    return activations, temporaries // (recording.world_size if sample.phase == "optimizer" else 1)


def _step(recording: Recording, step: StepRecording, zero: Zero) -> StepRecording:
    """Return a step with the stage's collectives, and with the optimizer's work divided among the ranks."""
    operations = [
        dataclasses.replace(
            each,
            waits_for=(),
            reads=_divide(each.reads, recording, each.phase),
            writes=_divide(each.writes, recording, each.phase),
        )
        for each in step.operations
        if not (zero.offload and each.phase == "optimizer")
    ]
    first = {phase: index for index, phase in reversed(list(enumerate(each.phase for each in operations)))}
    backward = first.get("backward", len(operations))
    optimizer = first.get("optimizer", len(operations))
    states = states_of(recording)
    middle, end = (backward, optimizer), len(operations)
    spread = functools.partial(_spread, recording.world_size, states.item)
    collectives: list[Collective] = []
    if recording.world_size > 1:
        if zero.stage == 3:  # noqa: PLR2004 - as above
            collectives += spread("allgather_base", "forward", states.parameters, (0, backward))
            collectives += spread("allgather_base", "backward", states.parameters, middle)
        collectives += spread("reduce_scatter_base", "backward", states.gradients, middle)
        if zero.stage < 3:  # noqa: PLR2004 - as above
            collectives += spread("allgather_base", "optimizer", states.gradients, (end, end))
    collectives.sort(key=lambda each: each.after)
    samples = _samples(recording, step, zero)
    return dataclasses.replace(
        step, operations=operations, collectives=collectives, samples=samples, peaks=_peaks(step, samples)
    )


def _peaks(step: StepRecording, samples: Sequence[MemorySample]) -> dict[Phase, tuple[int, dict[tuple[str, int], int]]]:
    """Return memory by module, whose categories a stage divides evenly among modules; its buckets are no module's."""
    peaks: dict[Phase, tuple[int, dict[tuple[str, int], int]]] = {}
    for phase, (_, recorded) in step.peaks.items():
        highest = max((each for each in samples if each.phase == phase), key=lambda each: sum(each.by_category))
        before: Counter[int] = Counter()
        for (_, category), size in recorded.items():
            before[category] += size
        by_module = {
            (module, category): size * highest.by_category[category] // before[category]
            for (module, category), size in recorded.items()
        }
        divided: Counter[int] = Counter()
        for (_, category), size in by_module.items():
            divided[category] += size
        for category, size in enumerate(highest.by_category):
            rest = size - divided[category]
            by_module["", category] = by_module.get(("", category), 0) + rest
        by_module = {key: size for key, size in by_module.items() if size}
        peaks[phase] = (sum(highest.by_category), by_module)
    return peaks


def _divide(accesses: tuple[tuple[int, int], ...], recording: Recording, phase: Phase) -> tuple[tuple[int, int], ...]:
    if phase != "optimizer":
        return accesses
    return tuple((storage, size // recording.world_size) for storage, size in accesses)


def _spread(  # noqa: PLR0913, PLR0917 - what a collective has
    ranks: int, item: int, name: str, phase: Phase, size: int, between: tuple[int, int]
) -> list[Collective]:
    """Return collectives of a bucket each, at even distances between two operators."""
    start, end = between
    count = max(-(-size // (item * _BUCKET)), 1)
    part = size // count
    own = part if name.startswith("reduce") else part // ranks
    members = tuple(range(ranks))
    return [
        Collective(name, phase, own, part, members, True, start + (end - start) * index // count)
        for index in range(count)
    ]
