"""Search for what fits: the largest batch, and the changes that need less memory. Each candidate is planned again."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING, Final

from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.rates import batch_size
from hpu_sim.plan.schema import Advice
from hpu_sim.prediction import zero
from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.ranges import ratio
from hpu_sim.prediction.reserve import fitting_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.session import Options
    from hpu_sim.prediction.recording import Recording

# Plans in search of the largest batch, beside the first one, and the factor by which a batch grows at most.
_MAX_PLANS: Final = 8
_MAX_GROWTH: Final = 64
# Strategies that replicate the model, around which ZeRO can be modelled.
_REPLICATED: Final = frozenset({"ddp", "single", "hpu_parallel", "hpu_ddp", "hpu_single"})
_OFFLOADED: Final = "the optimizer runs on the host, of which the time is not predicted"


def find_batch(
    record: Callable[[Options], Recording], options: Options, generation: str, largest: int | None = None
) -> tuple[Options, Recording] | None:
    """Return options and recording of the largest batch that fits with the whole reserve; None if no batch does.

    Memory grows about linearly with the batch, so the last two plans give an estimate of the next one. It may be flat
    for small batches, which a copy of the parameters hides: what fits so far is at most multiplied.
    """
    fitting = fitting_bytes(usable_memory(generation))

    def plan(size: int) -> tuple[Recording, int]:
        found = record(dataclasses.replace(options, batch_size=size))
        return found, memory_plan(found).peak_bytes

    found, peak = plan(1)
    if peak > fitting:
        return None
    best, too_large, size = (1, found, peak), (0, 0), 2
    for _ in range(_MAX_PLANS):
        size = size if largest is None else min(size, largest)
        if size <= best[0]:
            break
        found, peak = plan(size)
        before = best[0], best[2]
        if peak <= fitting:
            best = size, found, peak
        else:
            too_large = size, peak
        size = _next_size(before if peak <= fitting else (best[0], best[2]), (size, peak), fitting)
        size = min(size, best[0] * _MAX_GROWTH)
        if too_large[0]:
            size = min(max(size, best[0] + 1), too_large[0] - 1)
    return dataclasses.replace(options, batch_size=best[0]), best[1]


def _next_size(first: tuple[int, int], second: tuple[int, int], fitting: int) -> int:
    """Return the largest batch that fits, by the line through the sizes and peaks of two others."""
    slope = (second[1] - first[1]) / (second[0] - first[0])
    if slope <= 0:
        return second[0] * _MAX_GROWTH
    return int(second[0] + (fitting - second[1]) / slope)


def per_sample(of: tuple[Recording, str], to: tuple[Recording, str]) -> tuple[float, float]:
    """Return the range of the time per sample of one recording and generation, divided by that of another."""
    found = ratio(of, to)
    samples = [recording.accumulate * max(batch_size(recording), 1) for recording, _ in (of, to)]
    return found.low * samples[1] / samples[0], found.high * samples[1] / samples[0]


def advise(
    record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """Return changes that need less memory, and why others are left out.

    First come those that fit, each group by predicted time per sample. ZeRO comes after what the model can rank. Every
    change is planned. If none fits alone, combinations are planned until one fits.
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
        is_zero = advice.settings.get("strategy") in zero.STAGES
        return not advice.fits, "offload" in advice.title, is_zero, advice.relative

    found.sort(key=rank)
    return tuple(found), tuple(dict.fromkeys(search.left_out))


@dataclasses.dataclass(frozen=True)
class _Change:
    """Change of a program.

    Attributes:
        settings: Setting of the Trainer by name; ``checkpoint`` is the number of recomputed blocks.
        note: What the time does not show.
    """

    settings: dict[str, str]
    note: str = ""


class _Search:
    """Changes of one program that does not fit."""

    def __init__(
        self, record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
    ) -> None:
        self._record = record
        self._options = options
        self._recording = recording
        self._generation = generation
        self._usable = usable_memory(generation)
        self._fitting = fitting_bytes(self._usable)
        self._peak = memory_plan(recording).peak_bytes
        self._is_replicated = recording.strategy in _REPLICATED
        self.left_out: list[str] = []

    def changes(self) -> Iterator[_Change]:
        """Yield single changes."""
        if self._is_replicated and self._recording.world_size > 1:
            for name in ("deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3", "hpu_fsdp"):
                yield _Change({"strategy": name})
        if self._recording.precision.startswith(("32", "bf16-mixed")):
            yield _Change({"precision": "bf16-true"}, "parameters and optimizer have less precision")
        _, blocks = self._recording.blocks
        if blocks:
            with self._leaving_out("activation checkpointing"):
                yield _Change({"checkpoint": str(self._blocks_needed(blocks))})
        size = batch_size(self._recording)
        if size > 1:
            with self._leaving_out("a smaller batch"):
                found = find_batch(self._record, self._options, self._generation, largest=size - 1)
                fitting = found[0].batch_size if found is not None else None
                yield _Change({"batch_size": str(fitting or 1)}, "more steps, or gradient accumulation")
        if self._is_replicated:
            yield _Change({"strategy": "deepspeed_stage_3_offload"}, _OFFLOADED)
        elif self._recording.world_size > 1:
            # Sharded states shrink with the number of cards.
            for factor in (2, 4):
                yield _Change({"nodes": str(factor * self._options.nodes)}, "more cards")

    def combinations(self) -> Iterator[_Change]:
        """Yield combinations, the cheaper ones first."""
        _, blocks = self._recording.blocks
        strategies = ["deepspeed_stage_3"] if self._recording.world_size > 1 else []
        for strategy in [*strategies, "deepspeed_stage_3_offload"] if self._is_replicated else [""]:
            note = _OFFLOADED if "offload" in strategy else ""
            settings = {"strategy": strategy} if strategy else {}
            if blocks:
                settings = {**settings, "checkpoint": str(blocks)}
                yield _Change(settings, note)
            if batch_size(self._recording) > 1:
                yield _Change({**settings, "batch_size": "1"}, note)
            if not self._is_replicated and self._recording.world_size > 1:
                yield _Change({**settings, "nodes": str(4 * self._options.nodes)}, "more cards")

    def _blocks_needed(self, blocks: int) -> int:
        """Return the smallest number of recomputed blocks that fits, or all of them if that does not."""
        peak = memory_plan(self._apply({"checkpoint": str(blocks)})).peak_bytes
        if peak > self._fitting:
            return blocks
        # Each block saves as much as the next.
        needed = -(-(self._peak - self._fitting) * blocks // max(self._peak - peak, 1))
        while needed < blocks:
            if memory_plan(self._apply({"checkpoint": str(needed)})).peak_bytes <= self._fitting:
                return needed
            needed += 1
        return blocks

    def _apply(self, settings: dict[str, str]) -> Recording:
        """Return the recording with settings."""
        strategy = settings.get("strategy")
        is_modelled = strategy in zero.STAGES and zero.is_modelled(strategy)
        options = dataclasses.replace(
            self._options,
            checkpoint=int(settings.get("checkpoint", self._options.checkpoint)),
            batch_size=int(settings["batch_size"]) if "batch_size" in settings else self._options.batch_size,
            precision=settings.get("precision", self._options.precision),
            nodes=int(settings.get("nodes", self._options.nodes)),
            strategy=self._options.strategy if strategy is None or is_modelled else strategy,
        )
        recording = self._record(options)
        return zero.apply(recording, strategy) if strategy and is_modelled else recording

    def plan(self, change: _Change) -> Advice | None:
        """Return the plan of a change; None if it needs no less memory, or cannot be planned, which is noted."""
        applied: list[Recording] = []
        with self._leaving_out(self._title(change.settings)):
            applied.append(self._apply(change.settings))
        if not applied:
            return None
        (changed,) = applied
        peak = memory_plan(changed).peak_bytes
        if peak >= self._peak:
            self.left_out.append(f"{self._title(change.settings)} needs no less memory")
            return None
        low, high = per_sample((changed, self._generation), (self._recording, self._generation))
        cost = [f"{low:.2f} to {high:.2f} times the predicted time per sample", *([change.note] if change.note else [])]
        fits = peak <= fitting_bytes(self._usable)
        return Advice(self._title(change.settings), peak, fits, "; ".join(cost), change.settings, math.sqrt(low * high))

    @contextlib.contextmanager
    def _leaving_out(self, title: str) -> Iterator[None]:
        """Note why a change cannot be planned: a program may not bear a strategy or a batch."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - of any class, see above
            *_, message = str(error).splitlines() or [type(error).__name__]
            self.left_out.append(f"{title} cannot be planned: {message}")

    def _title(self, settings: dict[str, str]) -> str:
        name, blocks = self._recording.blocks
        titles = {
            "strategy": 'strategy="{}"',
            "precision": 'precision="{}"',
            "checkpoint": f"activation checkpointing of {{}} of {blocks} {name}",
            "batch_size": f"batch of {{}} per card instead of {batch_size(self._recording)}",
            "nodes": f"{{}} boxes instead of {self._options.nodes}",
        }
        return " and ".join(titles[key].format(value) for key, value in settings.items())
