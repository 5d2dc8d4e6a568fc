"""ZeRO as a model, where DeepSpeed does not run itself: what it keeps on the host has no memory in a plan.

The states and collectives of a stage take the place of those around the recorded forward and backward pass. In 16-bit
precision the states are those that ``packages/hpu-deepspeed/docs/memory.md`` measures on the simulator: 2 bytes of
parameters, 2 of gradients and 12 of optimizer per parameter. What waits for what follows DeepSpeed 0.19.8:
``runtime/zero/stage_1_and_2.py``, ``stage3.py`` and ``partitioned_param_coordinator.py``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common.formatting import format_int
from hpu_sim.prediction.recording import Collective, MemorySample, Operation, StepRecording, host_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpu_sim.prediction.recording import Access, Phase, Recording

# Elements of the buckets of Lightning's DeepSpeedStrategy.
_BUCKET: Final = 200_000_000
# DeepSpeed's own, where the program's configuration has none.
_BUCKET_OF_DEEPSPEED: Final = 500_000_000
_PREFETCHED: Final = 50_000_000
# Bytes read and written per byte of gradients: a bucket is flattened and scaled, and copied back to the gradients
# (`gradient_reduction_w_predivide` and `allreduce_and_copy`; with contiguous gradients, into the bucket first).
_COPIES: Final = 4
# Bytes per parameter of parameters and gradients, and of the optimizer: Adam's two states, and in 16-bit precision the
# parameters in float32.
_STATES_16: Final = (2, 12)
_STATES_32: Final = (4, 8)
# Storages of the rank's parts, beside those of the recording, whose numbers are not negative.
_GRADIENTS, _FLAT, _FLAT_32, _MASTERS, _PARAMETERS = range(-5, 0)


@dataclass(frozen=True)
class Zero:
    """A stage of ZeRO with its settings.

    Attributes:
        stage: 0 to 3.
        offload: Whether the optimizer is on the host.
        offload_parameters: Whether the parameters are on the host; stage 3 only.
        reduce_bucket: Elements of gradients that are reduced at once.
        gather_bucket: Elements of parameters that stages 1 and 2 gather at once after the optimizer.
        prefetch_bucket: Elements of parameters that stage 3 gathers ahead.
        overlaps: Whether collectives run beside the backward pass.
        synchronizes: Whether the throughput timer waits for the device before each forward pass, which is DeepSpeed's
            default (``utils/timer.py``).
    """

    stage: int
    offload: bool
    offload_parameters: bool = False
    reduce_bucket: int = _BUCKET
    gather_bucket: int = _BUCKET
    prefetch_bucket: int = _PREFETCHED
    overlaps: bool = True
    synchronizes: bool = True


#: What published ratios say of a comparison of strategies (docs/records/planner.md).
UNRANKED: Final = (
    "Whether ZeRO is faster than DDP is not known: with ZeRO-2, published steps of Gemma 2B on 8 cards took 1.24 times "
    "(Gaudi 2) and 1.18 times (Gaudi 3) as long as with DDP, which the model of time does not explain."
)

#: Stages by the names of Lightning's strategies, and of those that only a configuration has.
STAGES: Final = {
    "deepspeed": Zero(2, offload=False),
    "deepspeed_stage_0": Zero(0, offload=False),
    "deepspeed_stage_1": Zero(1, offload=False),
    "deepspeed_stage_1_offload": Zero(1, offload=True),
    "deepspeed_stage_2": Zero(2, offload=False),
    "deepspeed_stage_2_offload": Zero(2, offload=True),
    "deepspeed_stage_3": Zero(3, offload=False),
    "deepspeed_stage_3_offload": Zero(3, offload=True),
}


def from_config(config: Mapping[str, Any] | None, name: str) -> Zero:
    """Return the settings of a configuration of DeepSpeed, with those of a strategy's name where it has none."""
    if not config or "zero_optimization" not in config:
        return STAGES[name]
    found = config["zero_optimization"]
    timer = config.get("timers", {}).get("throughput", {})
    stage = int(found.get("stage", 0))

    def offloads(key: str) -> bool:
        return bool((found.get(key) or {}).get("device", "none") != "none")

    def elements(key: str, default: int) -> int:
        value = found.get(key, default)
        return default if value == "auto" else int(value)

    return Zero(
        stage,
        offload=offloads("offload_optimizer"),
        offload_parameters=offloads("offload_param"),
        reduce_bucket=elements("reduce_bucket_size", _BUCKET_OF_DEEPSPEED),
        gather_bucket=elements("allgather_bucket_size", _BUCKET_OF_DEEPSPEED),
        prefetch_bucket=elements("stage3_prefetch_bucket_size", _PREFETCHED),
        # DeepSpeed's default depends on the stage.
        overlaps=bool(stage == 3 if found.get("overlap_comm") is None else found["overlap_comm"]),  # noqa: PLR2004
        synchronizes=timer.get("enabled", True) and timer.get("synchronized", True),
    )


def is_modelled(name: str, config: Mapping[str, Any] | None = None) -> bool:
    """Return whether a strategy is modelled: the optimizer or the parameters are on the host, or DeepSpeed is missing.

    All others run themselves.
    """
    found = from_config(config, name)
    is_missing = any(importlib.util.find_spec(package) is None for package in ("deepspeed", "hpu_deepspeed"))
    return found.offload or found.offload_parameters or is_missing


def apply(recording: Recording, name: str, zero: Zero | None = None) -> Recording:
    """Return a recording of data-parallel training with the states and collectives of a stage instead.

    Args:
        recording: Recording of one step, with all of its micro-batches.
        name: Name of the strategy.
        zero: Settings; None for those of the name.
    """
    zero = zero or STAGES[name]
    note = (
        "ZeRO is modelled, not executed: states as on hpu-deepspeed's memory page, collectives as in DeepSpeed 0.19.8, "
        f"buckets of {format_int(zero.reduce_bucket)} elements, forward and backward as recorded."
    )
    notes = [*recording.notes, note, UNRANKED]
    if zero.offload or zero.offload_parameters:
        notes.append("The time of work on the host and of transfers for offload is not predicted.")
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

    Every stage but 0 keeps only the rank's part of the gradients: DeepSpeed 0.19 does so in stage 1 as well.
    """
    parts = ranks if zero.stage else 1
    parameters, gradients = states.parameters, states.gradients // parts
    optimizer = 0 if zero.offload else states.optimizer // parts
    buckets = min(states.item * zero.reduce_bucket, states.gradients)
    if zero.stage == 3:  # noqa: PLR2004 - the stage's name
        # The largest module and the next one are gathered while it runs.
        buckets += min(max(2 * states.largest_module, states.item * zero.gather_bucket), parameters)
        parameters = 0 if zero.offload_parameters else parameters // ranks
    elif ranks > 1:
        buckets += min(states.item * zero.gather_bucket, states.gradients)
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


def passes(operations: Sequence[Operation], phase: Phase) -> list[tuple[int, int]]:
    """Return first position and end of the forward or backward pass of each micro-batch."""
    found: list[tuple[int, int]] = []
    start: int | None = None
    for index, each in enumerate(operations):
        if each.phase == phase and start is None:
            start = index
        elif each.phase != phase and start is not None:
            found.append((start, index))
            start = None
    return [*found, *([(start, len(operations))] if start is not None else [])]


def _samples(recording: Recording, step: StepRecording, zero: Zero) -> list[MemorySample]:
    weights, gradients, optimizer, buckets = divide(states_of(recording), zero, recording.world_size)
    samples = []
    for sample in step.samples:
        _, _, _, activations, temporaries, _, others = sample.by_category
        # Those of the optimizer are divided among the ranks.
        temporaries //= recording.world_size if sample.phase == "optimizer" and zero.stage else 1
        sizes = (weights, gradients, optimizer, activations, temporaries, buckets, others)
        samples.append(MemorySample(sample.after, sample.phase, sizes))
    return samples


def _step(recording: Recording, step: StepRecording, zero: Zero) -> StepRecording:
    """Return a step with the stage's collectives, reads by the host, and work of the optimizer."""
    update = max((end for _, end in passes(step.operations, "backward")), default=len(step.operations))
    kept = [index for index, each in enumerate(step.operations) if not (zero.offload and each.phase == "optimizer")]
    operations = [
        _update(step.operations[index], recording.world_size if zero.stage else 1)
        if index >= update
        else dataclasses.replace(step.operations[index], waits_for=())
        for index in kept
    ]
    inserted = _inserted(recording, operations, zero)
    graph_ends = {sum(index < end for index in kept) for end in step.graph_ends}
    graph_ends = {end + sum(position < end for position, _ in inserted) for end in graph_ends}
    for position, operation in reversed(inserted):
        operations.insert(position, operation)
    collectives: list[Collective] = []
    if recording.world_size > 1:
        collectives = _Traffic(recording, operations, zero).collectives()
    samples = _samples(recording, step, zero)
    return dataclasses.replace(
        step,
        operations=operations,
        collectives=collectives,
        samples=samples,
        peaks=_peaks(step, samples),
        graph_ends=sorted(graph_ends),
    )


def _update(operation: Operation, parts: int) -> Operation:
    """Return an operator after the backward pass, of the optimizer or of clipping, as DeepSpeed runs it.

    It runs on the rank's part of the gradients and of the parameters, in float32.
    """
    factor = 2 if operation.dtype in {"bfloat16", "float16"} else 1
    reads, writes = (
        tuple((storage, factor * size // parts) for storage, size in accesses)
        for accesses in (operation.reads, operation.writes)
    )
    return dataclasses.replace(operation, phase="optimizer", waits_for=(), reads=reads, writes=writes)


def _inserted(recording: Recording, operations: Sequence[Operation], zero: Zero) -> list[tuple[int, Operation]]:
    """Return what DeepSpeed adds to a step, each with the position of the operator before which it is, in order."""
    found = []
    end = len(operations)
    if zero.synchronizes:
        _, *others = passes(operations, "forward") or [(0, 0)]
        found += [(start, host_read("forward")) for start, _ in others]
    if zero.stage:
        update = max((last for _, last in passes(operations, "backward")), default=end)
        # DeepSpeed reads the norm of the gradients, or whether one overflowed, before the optimizer.
        found.append((update, host_read("optimizer")))
        if not zero.offload:
            states = states_of(recording)
            own, masters = states.gradients // recording.world_size, 4 * recording.trainable // recording.world_size
            # The gradients become a flat tensor in float32, and the parameters are copied back from another one.
            found += [
                (update, _copy("cat", (_GRADIENTS, own), (_FLAT, own))),
                (update, _copy("_to_copy", (_FLAT, own), (_FLAT_32, masters))),
                (end, _copy("copy_", (_MASTERS, masters), (_PARAMETERS, own))),
            ]
    if zero.synchronizes:
        found.append((end, host_read("optimizer")))
    return found


def _copy(name: str, read: Access, written: Access) -> Operation:
    return Operation(f"aten.{name}", "optimizer", "", "float32", 0, None, (read,), (written,), 0)


class _Traffic:
    """Collectives of a stage around the operators of a step, which are told what they wait for."""

    def __init__(self, recording: Recording, operations: list[Operation], zero: Zero) -> None:
        self._operations = operations
        self._zero = zero
        self._states = states_of(recording)
        self._ranks = tuple(range(recording.world_size))
        self._forward: tuple[tuple[int, int], list[tuple[int, int]]] = ((0, 0), [])
        #: Each with the position of the operator that waits for it; None if the step's end does.
        self._found: list[tuple[Collective, int | None]] = []

    def collectives(self) -> list[Collective]:
        """Return the collectives in order."""
        forward, backward = (passes(self._operations, phase) for phase in ("forward", "backward"))
        if self._zero.stage == 3:  # noqa: PLR2004 - the stage's name
            for phase, ranges in (("forward", forward), ("backward", backward)):
                for between in ranges:
                    self._gather_ahead("forward" if phase == "forward" else "backward", between)
        # From stage 2 on, the gradients of every micro-batch are reduced, because a rank keeps only its part.
        for between in backward if self._zero.stage >= 2 else backward[-1:]:  # noqa: PLR2004 - as above
            self._reduce(between)
        if self._zero.stage in {1, 2}:
            end = len(self._operations) - self._zero.synchronizes
            self._split("allgather_base", "optimizer", self._zero.gather_bucket, (end, end), is_async=False)
        self._found.sort(key=lambda pair: pair[0].after)
        for index, (_, waiting) in enumerate(self._found):
            if waiting is not None and waiting < len(self._operations):
                operation = self._operations[waiting]
                operation.waits_for = (*operation.waits_for, index)
        return [each for each, _ in self._found]

    def _gather_ahead(self, phase: Phase, between: tuple[int, int]) -> None:
        """Gather the parameters of a pass a bucket ahead; the first operator that reads one of a bucket waits."""
        buckets = list(self._buckets(between))
        total = sum(size for _, size in buckets)
        if phase == "forward":
            self._forward = between, buckets
        elif total < sum(size for _, size in self._forward[1]) // 2:
            # Autocast's casts, which the forward pass has written, stand for the parameters: the order is the reverse.
            buckets = [*_mirrored(*self._forward, between)]
            total = sum(size for _, size in buckets)
        for number, (position, size) in enumerate(buckets):
            scaled = self._states.parameters * size // max(total, 1)
            issued = position if not self._zero.overlaps else buckets[max(number - 1, 0)][0]
            call = self._call("allgather_base", phase, scaled, issued, is_async=self._zero.overlaps)
            self._found.append((call, position if self._zero.overlaps else None))

    def _buckets(self, between: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Yield position and bytes of parameters that a pass reads first, in groups of the prefetched size.

        Parameters are what a pass reads and no operator of the step has written before.
        """
        start, end = between
        limit = self._states.item * self._zero.prefetch_bucket
        written = {storage for each in self._operations[:start] for storage, _ in each.writes}
        seen: set[int] = set()
        first, held = start, 0
        for index in range(start, end):
            operation = self._operations[index]
            for storage, size in operation.reads:
                if storage not in written and storage not in seen:
                    seen.add(storage)
                    if held and held + size > limit:
                        yield first, held
                        first, held = index, 0
                    held += size
            written.update(storage for storage, _ in operation.writes)
        if held:
            yield first, held

    def _reduce(self, between: tuple[int, int]) -> None:
        start, end = between
        if self._zero.stage == 0:
            start = end
        name = "reduce_scatter_base" if self._zero.stage == 3 else "allreduce"  # noqa: PLR2004 - the stage's name
        overlaps = self._zero.overlaps and self._zero.stage > 0
        self._split(name, "backward", self._zero.reduce_bucket, (start, end), is_async=overlaps)

    def _split(self, name: str, phase: Phase, bucket: int, between: tuple[int, int], *, is_async: bool) -> None:
        """Add collectives of a bucket of gradients each, at even distances; what follows the pass waits for them."""
        start, end = between
        size = self._states.gradients
        count = max(-(-size // (self._states.item * bucket)), 1)
        for index in range(count):
            # A bucket is full when its part of the pass has run.
            position = start + (end - start) * (index + 1) // count
            call = self._call(name, phase, size // count, position, is_async=is_async)
            if phase == "backward" and self._zero.stage:
                call = dataclasses.replace(call, copied_bytes=_COPIES * call.total_bytes)
            self._found.append((call, end if is_async else None))

    def _call(self, name: str, phase: Phase, size: int, after: int, *, is_async: bool) -> Collective:
        own = size // len(self._ranks) if name.startswith("allgather") else size
        return Collective(name, phase, own, size, self._ranks, is_async, after)


def _mirrored(
    source: tuple[int, int], buckets: Sequence[tuple[int, int]], target: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield buckets of a range at the mirrored places of another one."""
    length = max(source[1] - source[0], 1)
    ends = [*(position for position, _ in buckets[1:]), source[1]]
    for end, (_, size) in zip(reversed(ends), reversed(buckets), strict=True):
        yield target[0] + (source[1] - end) * (target[1] - target[0]) // length, size


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
