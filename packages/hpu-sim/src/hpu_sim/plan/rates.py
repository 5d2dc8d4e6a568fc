"""Speed of a job: samples and tokens per second, use of the matrix engines, and time to train."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hpu_sim.plan.schema import RatePlan
from hpu_sim.prediction.hardware import hardware, highest_efficiency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_sim.prediction.ranges import Range
    from hpu_sim.prediction.recording import Recording

#: Peaks that Intel states (white paper 817486), where the data of hpu-sim have that of the real clock.
STATED_FLOPS: Final = {"GAUDI3": {"bfloat16": 1835e12, "float8": 1835e12}}
# A backward pass has the products of the forward pass twice.
_PASSES: Final = 3
_SHORTEST_SEQUENCE: Final = 8


def batch_size(recording: Recording) -> int:
    """Return the samples of a rank's batch; 0 if it is not known."""
    shapes = [shape for _, shape, _ in recording.steady.inputs if shape]
    return shapes[0][0] if shapes else 0


def rate_plan(recording: Recording, generation: str, found: Range, planned: int = 0) -> RatePlan:
    """Return the speed of a recorded step.

    Args:
        recording: Recording.
        generation: Generation of the devices.
        found: Range of the step's seconds.
        planned: Samples to train for; 0 if none are given.
    """
    batches = recording.accumulate * (recording.replicas or recording.world_size)
    samples, tokens = batches * batch_size(recording), batches * _tokens(recording)
    ends = (found.high, found.low)
    hours = [planned / samples * seconds / 3600 if samples else 0.0 for seconds in ends]
    return RatePlan(
        samples=samples,
        tokens=tokens,
        samples_per_second=_pair(samples / seconds if seconds else 0.0 for seconds in ends),
        tokens_per_second=_pair(tokens / seconds if seconds else 0.0 for seconds in ends),
        mfu=_pair(_utilization(recording, generation, seconds, is_measured=False) for seconds in ends),
        mfu_of_measured=_pair(_utilization(recording, generation, seconds, is_measured=True) for seconds in ends),
        planned_samples=planned,
        hours=_pair(hours),
        card_hours=_pair(each * recording.world_size for each in hours),
    )


def _pair(values: Iterable[float]) -> tuple[float, float]:
    slow, fast = values
    return slow, fast


def _tokens(recording: Recording) -> int:
    """Return the tokens of a rank's batch: those of the first matrix of integers."""
    for dtype, shape, _ in recording.steady.inputs:
        if dtype.startswith("int") and len(shape) == 2 and shape[1] >= _SHORTEST_SEQUENCE:  # noqa: PLR2004 - a matrix
            return int(shape[0] * shape[1])
    return 0


def _utilization(recording: Recording, generation: str, seconds: float, *, is_measured: bool) -> float:
    """Return the share of a step that the model's operations take at the peaks of their dtypes."""
    flops: Counter[str] = Counter()
    forward = 0
    for operation in recording.steady.operations:
        flops[operation.dtype] += operation.flops
        forward += operation.flops if operation.phase == "forward" else 0
    total = flops.total()
    if not total or not seconds:
        return 0.0
    at_peak = sum(count / _peak(generation, dtype, is_measured=is_measured) for dtype, count in flops.items() if count)
    # Recomputed activations are work of the step and not of the model.
    return at_peak * min(1.0, _PASSES * forward / total) / seconds


def _peak(generation: str, dtype: str, *, is_measured: bool) -> float:
    device = hardware(generation, "middle")
    known = device.matrix_flops.get(dtype) or device.matrix_flops["float32"]
    if is_measured:
        return known * highest_efficiency(generation)
    return STATED_FLOPS.get(generation, {}).get(dtype, known)
