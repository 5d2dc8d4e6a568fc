"""Search for what fits: the largest batch, and the changes that need less memory. Each candidate is planned again."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.plan.compare import batch_size
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.schema import Advice
from hpu_sim.prediction import zero
from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.ranges import Clock
from hpu_sim.prediction.recording import STEPS
from hpu_sim.prediction.reserve import fitting_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.options import Options
    from hpu_sim.prediction.recording import Recording

# Plans in search of the largest batch, beside the first one, and the factor by which a batch grows at most.
_MAX_PLANS: Final = 8
_MAX_GROWTH: Final = 64
# Changes of a program: options by name.
_Change = dict[str, Any]
# What the predicted time does not show of a change.
_NOTES: Final = {
    "precision": "parameters and optimizer have less precision",
    "batch_size": "more steps, or gradient accumulation",
    "nodes": "more cards",
}
# Strategies that replicate the model.
_REPLICATED: Final = frozenset({"ddp", "single", "hpu_parallel", "hpu_ddp", "hpu_single"})
#: What strategies divide among the ranks.
STATES: Final = ("parameters", "gradients", "optimizer state", "communication buffers")


def find_batch(
    record: Callable[[Options], Recording],
    options: Options,
    generation: str,
    too_large: tuple[int, int] | None = None,
) -> tuple[Options, Recording] | None:
    """Return options and recording of the largest batch that fits with the whole reserve; None if no batch does.

    Memory grows about linearly with the batch, so two plans give an estimate of the next one. It may be flat for small
    batches, which a copy of the parameters hides: what fits so far is at most multiplied.

    ``too_large`` is a batch that does not fit, with its peak. Then the search ends where the line from what fits to it
    says that no more does.
    """
    fitting = fitting_bytes(usable_memory(generation))
    is_exact = too_large is None

    def plan(size: int) -> tuple[int, Recording, int]:
        found = record(dataclasses.replace(options, batch_size=size))
        return size, found, memory_plan(found).peak_bytes

    best, before = plan(1), (0, 0)
    if best[2] > fitting:
        return None
    for _ in range(_MAX_PLANS):
        if too_large is not None:
            size = int(best[0] + (fitting - best[2]) * (too_large[0] - best[0]) / max(too_large[1] - best[2], 1))
            size = min(max(size, best[0] + is_exact), too_large[0] - 1)
        elif before[0] and best[2] > before[1]:
            size = int(best[0] + (fitting - best[2]) * (best[0] - before[0]) / (best[2] - before[1]))
            size = min(max(size, best[0] + 1), best[0] * _MAX_GROWTH)
        else:
            size = best[0] * (_MAX_GROWTH if before[0] else 2)
        if size <= best[0]:
            break
        this = plan(size)
        if this[2] <= fitting:
            before, best = (best[0], best[2]), this
        else:
            too_large = size, this[2]
    return dataclasses.replace(options, batch_size=best[0]), best[1]


def advise(
    record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """Return changes that need less memory, and why others are left out.

    First come those that fit, each group by predicted time per sample. ZeRO comes after what the model can rank. Every
    change is planned, unless it could not save enough. If none fits alone, combinations are planned until one fits.
    """
    search = _Search(record, options, recording, generation)
    found = [advice for change in search.changes() if (advice := search.plan(change)) is not None]
    if not any(advice.fits for advice in found):
        for change in search.combinations():
            combined = search.plan(change)
            if combined is not None:
                found.append(combined)
                if combined.fits:
                    break

    def rank(advice: Advice) -> tuple[bool, bool, bool, float]:
        strategy = advice.settings.get("strategy", "")
        return not advice.fits, zero.OFFLOAD in strategy, zero.is_zero(strategy), advice.relative

    found.sort(key=rank)
    return tuple(found), tuple(dict.fromkeys(search.left_out))


class _Search:
    """Changes of one program that does not fit."""

    def __init__(
        self, record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
    ) -> None:
        self._record = record
        # The third step of DDP, with its last buckets, needs no more memory than the second one.
        self._options = dataclasses.replace(options, steps=STEPS)
        self._recording = recording
        self._generation = generation
        self._fitting = fitting_bytes(usable_memory(generation))
        memory = memory_plan(recording)
        self._peak = memory.peak_bytes
        self._states = sum(memory.at_peak[name] for name in STATES)
        self._is_replicated = recording.strategy in _REPLICATED
        self.left_out: list[str] = []

    def changes(self) -> Iterator[_Change]:
        """Yield single changes."""
        # In DeepSpeed 0.19, stage 1 keeps as much as stage 2.
        sharded = ("deepspeed_stage_2", "deepspeed_stage_3", "hpu_fsdp") if self._recording.world_size > 1 else ()
        for name in (*sharded, "deepspeed_stage_3_offload") if self._is_replicated else ():
            if self._could_fit(f'strategy="{name}"'):
                yield {"strategy": name}
        precision = self._recording.precision
        # Activations are in bfloat16 already under autocast.
        if precision.startswith("32") or (precision == "bf16-mixed" and self._could_fit('precision="bf16-true"')):
            yield {"precision": "bf16-true"}
        _, blocks = self._recording.blocks
        if blocks:
            with self._leaving_out("activation checkpointing"):
                yield {"checkpoint": self._blocks_needed(blocks)}
        size = batch_size(self._recording)
        if size > 1:
            with self._leaving_out("a smaller batch"):
                found = find_batch(self._record, self._options, self._generation, (size, self._peak))
                yield {"batch_size": found[0].batch_size if found is not None else 1}
        if not self._is_replicated and self._recording.world_size > 1:
            # Sharded states shrink with the number of cards.
            for factor in (2, 4):
                yield {"nodes": factor * self._options.nodes}

    def combinations(self) -> Iterator[_Change]:
        """Yield combinations, the cheaper ones first."""
        _, blocks = self._recording.blocks
        is_job = self._recording.world_size > 1
        stages = [*(["deepspeed_stage_3"] if is_job else []), "deepspeed_stage_3_offload"]
        for strategy in stages if self._is_replicated else [""]:
            change: _Change = {"strategy": strategy} if strategy else {}
            if blocks:
                change = {**change, "checkpoint": blocks}
                yield change
            if batch_size(self._recording) > 1:
                yield {**change, "batch_size": 1}
            if is_job and not self._is_replicated:
                yield {**change, "nodes": 4 * self._options.nodes}

    def _could_fit(self, change: str) -> bool:
        """Return whether a change, which makes no more than the states smaller, is worth a plan of its own."""
        is_enough = self._peak - self._states <= self._fitting
        if not is_enough:
            self.left_out.append(f"{change} cannot fit alone on {self._generation}: most memory is that of activations")
        return is_enough

    def _blocks_needed(self, blocks: int) -> int:
        """Return the smallest number of recomputed blocks that fits, or all of them if that does not."""
        peak = memory_plan(self._apply({"checkpoint": blocks})).peak_bytes
        if peak > self._fitting:
            return blocks
        # Each block saves as much as the next.
        needed = -(-(self._peak - self._fitting) * blocks // max(self._peak - peak, 1))
        while needed < blocks:
            if memory_plan(self._apply({"checkpoint": needed})).peak_bytes <= self._fitting:
                return needed
            needed += 1
        return blocks

    def _apply(self, change: _Change) -> Recording:
        """Return the recording with a change."""
        # DeepSpeed's timer waits for the device from the third step on.
        steps = 0 if zero.is_zero(change.get("strategy", "")) else self._options.steps
        return self._record(dataclasses.replace(self._options, steps=steps, **change))

    def plan(self, change: _Change) -> Advice | None:
        """Return the plan of a change; None if it needs no less memory, or cannot be planned, which is noted."""
        title = self._title(change)
        applied: list[Recording] = []
        with self._leaving_out(title):
            applied.append(self._apply(change))
        if not applied:
            return None
        (changed,) = applied
        peak = memory_plan(changed).peak_bytes
        if peak >= self._peak:
            self.left_out.append(f"{title} needs no less memory")
            return None
        relative = self._seconds(changed) / self._seconds(self._recording)
        notes = [text for name, text in _NOTES.items() if name in change]
        notes += [zero.OFFLOADED] if zero.OFFLOAD in change.get("strategy", "") else []
        settings = {name: str(value) for name, value in change.items()}
        return Advice(title, peak, peak <= self._fitting, "; ".join([f"{relative:.2f}", *notes]), settings, relative)

    def _seconds(self, recording: Recording) -> float:
        """Return the time per sample of a rank."""
        return Clock(recording, self._generation).seconds() / (recording.accumulate * max(batch_size(recording), 1))

    @contextlib.contextmanager
    def _leaving_out(self, title: str) -> Iterator[None]:
        """Note why a change cannot be planned: a program may not bear a strategy or a batch."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            *_, message = str(error).splitlines() or [type(error).__name__]
            self.left_out.append(f"{title} cannot be planned: {message}")

    def _title(self, change: _Change) -> str:
        name, blocks = self._recording.blocks
        titles = {
            "strategy": 'strategy="{}"',
            "precision": 'precision="{}"',
            "checkpoint": f"activation checkpointing of {{}} of {blocks} {name}",
            "batch_size": f"batch of {{}} per card instead of {batch_size(self._recording)}",
            "nodes": f"{{}} boxes instead of {self._options.nodes}",
        }
        return " and ".join(titles[key].format(value) for key, value in change.items())
