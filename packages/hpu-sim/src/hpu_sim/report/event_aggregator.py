"""Listens to the device and counts what it hears by line and by step."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.report.formatting import backward_op_name, first_dtype, format_dtypes
from hpu_sim.report.frames import FrameClassifier, backward_caller_frame
from hpu_sim.report.optimizer_memory import OptimizerMemoryTracker
from hpu_sim.report.schema import Compilation
from hpu_sim.report.site_counter import CollectiveCounter, SiteCounter, SiteTable
from hpu_sim.report.step_histogram import StepHistogram
from hpu_sim.report.step_tracker import StepTracker

if TYPE_CHECKING:
    from types import FrameType

    from hpu_sim.report.schema import CollectiveStats, Kind, OptimizerMemory, Site, Steps

#: Compilations that are kept in full; further ones are only counted by line.
MAX_COMPILATIONS: Final = 200


class EventAggregator:
    """Takes the device's events and the optimizers' steps of one process.

    Attributes:
        problem: What stopped it, or None.
        compilations: Graphs compiled, the first :data:`MAX_COMPILATIONS` of them.
    """

    def __init__(self) -> None:
        self.recording_error: str | None = None
        self.compilations: list[Compilation] = []
        # Reentrant: a signal handler that runs in the middle may use the device, too.
        self._lock = threading.RLock()
        self._step_tracker = StepTracker()
        self._histogram = StepHistogram()
        self._sites = SiteTable(FrameClassifier())
        self._collectives = CollectiveCounter()
        self._memory = OptimizerMemoryTracker()
        self._pending_miss: tuple[SiteCounter, str] | None = None

    def on_event(self, kind: str, op: str, detail: str, size: int, frame: FrameType | None) -> None:
        """Take an event of ``csrc/observer.h``; it never raises, for the program is not to notice.

        Args:
            kind: Its kind.
            op: The operator, or the collective.
            detail: Shapes and dtypes, or a dtype, or the reason of a refusal.
            size: Its bytes.
            frame: What Python is running in the thread of the event; None where it runs none.
        """
        if self.recording_error is not None:
            return
        try:
            with self._lock:
                self._handle(kind, op, detail, size, frame)
        except Exception as error:  # noqa: BLE001 - a fault in here must not become one of the program
            self.recording_error = f"{type(error).__name__}: {error}"

    def on_optimizer_step(self, optimizer: Any, frame: FrameType | None) -> None:
        """Note that an optimizer has made a step; it never raises.

        Args:
            optimizer: The optimizer.
            frame: What Python is running.
        """
        if self.recording_error is not None:
            return
        try:
            with self._lock:
                if self._step_tracker.on_optimizer_step(optimizer, frame):
                    self._histogram.end_step()
                self._memory.measure(optimizer)
        except Exception as error:  # noqa: BLE001 - as above
            self.recording_error = f"{type(error).__name__}: {error}"

    def _handle(self, kind: str, op: str, detail: str, size: int, frame: FrameType | None) -> None:
        backward = None
        if frame is None:
            # The engine of autograd runs in a thread without Python; the main thread waits for it.
            frame, backward = backward_caller_frame(), _backward_operator()
        if self._step_tracker.on_event(frame):
            self._histogram.end_step()
        if kind == "host_sync":
            self._histogram.host_syncs += 1
            self._counter("host_sync", op, "", frame, backward).add(self._step_tracker.step, 0, "")
        elif kind in {"h2d", "d2h"}:
            self._handle_copy("h2d" if kind == "h2d" else "d2h", detail, size, frame, backward)
        elif kind == "collective":
            self._collectives.add(op, size)
            counter = self._counter("collective", op, first_dtype(detail), frame, backward)
            counter.add(self._step_tracker.step, size, detail)
        elif kind == "divergence":
            variant = "shapes" if " -> " in detail else "operators"
            self._pending_miss = (self._counter("compilation", op, variant, frame, backward), detail)
        elif kind in {"compilation", "recompilation"}:
            self._handle_compilation(kind == "recompilation", frame, backward)
        elif kind == "dtype":
            self._counter("dtype", op, detail, frame, backward).add(self._step_tracker.step, 0, "")
        elif kind == "refused":
            self._counter("refused", op, "", frame, backward).add(self._step_tracker.step, 0, detail)

    def _counter(self, kind: Kind, op: str, variant: str, frame: FrameType | None, backward: str | None) -> SiteCounter:
        return self._sites.get(kind, op, variant, frame, backward)

    def _handle_copy(
        self, kind: Literal["h2d", "d2h"], detail: str, size: int, frame: FrameType | None, backward: str | None
    ) -> None:
        tensor, _, memory = detail.rpartition(", ")
        self._histogram.copied_bytes += size
        self._counter(kind, "copy", memory, frame, backward).add(self._step_tracker.step, size, tensor)
        # The device tells of float64 itself, but not of a dtype that only some cards store otherwise.
        if kind == "h2d" and first_dtype(tensor) == "int64":
            self._counter("dtype", "copy to the card", "int64", frame, backward).add(self._step_tracker.step, 0, "")

    def _handle_compilation(self, is_recompile: bool, frame: FrameType | None, backward: str | None) -> None:
        self._histogram.compilations += 1
        counter, detail = self._pending_miss or (self._counter("compilation", "", "end", frame, backward), "")
        self._pending_miss = None
        counter.add(self._step_tracker.step, 0, detail)
        if len(self.compilations) < MAX_COMPILATIONS:
            reason: Any = counter.variant
            before, _, after = format_dtypes(detail).rpartition(" -> ")
            place = None if counter.frame_index is None else counter.stack[counter.frame_index]
            self.compilations.append(
                Compilation(self._step_tracker.step, is_recompile, reason, counter.op, before, after, place)
            )

    def steps(self) -> Steps:
        """Return the training so far."""
        with self._lock:
            finished = self._step_tracker.finished
            sums = copy.deepcopy(self._histogram)
            if finished == self._step_tracker.step:
                sums.end_step(is_last=True)
            return sums.steps(finished)

    def sites(self) -> tuple[Site, ...]:
        """Return where what happened, the most frequent first."""
        with self._lock:
            return self._sites.sites()

    def collectives(self) -> tuple[CollectiveStats, ...]:
        """Return the collectives by name."""
        with self._lock:
            return self._collectives.stats()

    def optimizer_memory(self) -> OptimizerMemory | None:
        """Return what the optimizers hold; None where that is not known."""
        with self._lock:
            return self._memory.total()

    @property
    def dropped_events(self) -> int:
        """Events that belong to no site because there were too many sites."""
        return self._sites.dropped_events


def _backward_operator() -> str:
    """Return the operator whose backward pass this thread runs; the empty text where torch does not tell."""
    import torch

    # Not in torch before 2.1.
    current_node = getattr(torch._C, "_current_autograd_node", None)  # noqa: SLF001 - torch has no public way
    node = current_node() if current_node is not None else None
    return backward_op_name(node.name()) if node is not None else ""
