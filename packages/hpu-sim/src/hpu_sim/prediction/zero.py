"""ZeRO in a plan. DeepSpeed runs itself; what it keeps on the host instead of the device is taken out of a recording.

Memory of the host is not planned, and its work is not timed: a plan of an offloaded stage is that of the stage on the
device, without the optimizer's state and operators.
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction.recording import CATEGORIES, MemorySample, StepRecording

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Recording

#: End of the names of strategies that keep the optimizer on the host.
OFFLOAD: Final = "_offload"
#: What published ratios say of a comparison of strategies (docs/records/planner.md).
UNRANKED: Final = (
    "Whether ZeRO is faster than DDP is not known: with ZeRO-2, published steps of Gemma 2B on 8 cards took 1.24 times "
    "(Gaudi 2) and 1.18 times (Gaudi 3) as long as with DDP, which the model of time does not explain."
)
OFFLOADED: Final = "The optimizer runs on the host: the time of that, and of the transfers, is not predicted."
_PARAMETERS: Final = "Parameters that would be offloaded are counted on the device."
_STATE: Final = CATEGORIES.index("optimizer state")


def is_zero(strategy: str) -> bool:
    """Return whether a strategy is one of DeepSpeed."""
    return "deepspeed" in strategy


def on_device(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of DeepSpeed that keeps everything on the device."""
    found = copy.deepcopy(config)
    for key in ("offload_optimizer", "offload_param"):
        found.get("zero_optimization", {}).pop(key, None)
    return found


def offloads(config: dict[str, Any], kind: str = "optimizer") -> bool:
    """Return whether a configuration of DeepSpeed keeps the optimizer, or "param", on the host."""
    found = config.get("zero_optimization", {}).get(f"offload_{kind}") or {}
    return bool(found.get("device", "none") != "none")


def offloaded(recording: Recording, strategy: str, *, has_parameters: bool = False) -> Recording:
    """Return the recording of a stage of ZeRO as that of a strategy with the optimizer, and parameters, on the host."""
    notes = [*recording.notes, OFFLOADED, *([_PARAMETERS] if has_parameters else [])]
    setup, *steps = (_without_state(each) for each in (recording.setup, *recording.steps))
    return dataclasses.replace(recording, strategy=strategy, setup=setup, steps=steps, notes=notes)


def _without_state(step: StepRecording) -> StepRecording:
    kept = [index for index, each in enumerate(step.operations) if each.phase != "optimizer" or each.waits_for]

    def moved(after: int) -> int:
        return bisect.bisect_left(kept, after)

    def sizes(sample: MemorySample) -> tuple[int, ...]:
        return tuple(0 if number == _STATE else size for number, size in enumerate(sample.by_category))

    samples = [dataclasses.replace(each, after=moved(each.after), by_category=sizes(each)) for each in step.samples]
    return dataclasses.replace(
        step,
        operations=[step.operations[index] for index in kept],
        collectives=[dataclasses.replace(each, after=moved(each.after)) for each in step.collectives],
        samples=samples,
        peaks={phase: tuple(e for e in found if e.category != _STATE) for phase, found in step.peaks.items()},
        graph_ends=sorted({moved(end) for end in step.graph_ends}),
    )
