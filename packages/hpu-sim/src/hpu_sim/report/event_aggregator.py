"""Aggregation of the device's events by stack, cause and training step."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, cast

from hpu_sim.common.formatting import backward_op_name, first_dtype, have_same_shapes
from hpu_sim.common.frames import backward_caller_frame, call_path, user_frame
from hpu_sim.report.site_counter import Origin, SiteTable

if TYPE_CHECKING:
    from types import FrameType

    from hpu_sim.device.events import Event
    from hpu_sim.prediction.steps import StepTracker
    from hpu_sim.report.schema import Kind, Site

# Kinds of events of which each site keeps the details.
_DETAILED: Final = frozenset({"unsupported", "late_error", "graph_break", "trace_break", "compiled_graph"})


class EventAggregator:
    """Aggregator of the device events and optimizer steps of one process.

    No method raises: a bug in here must not stop the program. The first exception ends aggregation instead.

    Args:
        steps: Tracker of the program's steps, which this drives.

    Attributes:
        recording_error: Exception that ended aggregation, if any.
    """

    def __init__(self, steps: StepTracker) -> None:
        self.recording_error: str | None = None
        # Reentrant, because a signal handler may run during an event and use the device.
        self._lock = threading.RLock()
        self._step_tracker = steps
        self._sites = SiteTable()
        self._pending_miss: tuple[Site, str] | None = None

    def on_event(self, event: Event, frame: FrameType | None) -> None:
        """Count an event of the device, or the end of an optimizer's step.

        Args:
            event: Event.
            frame: Current Python frame of the calling thread; None to ignore the position in the program.
        """
        if self.recording_error is not None:
            return
        try:
            with self._lock:
                if event.kind == "optimizer_end":
                    self._step_tracker.on_optimizer_step(event.arguments[0], call_path(frame))
                else:
                    self._handle(event, frame)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            self.recording_error = f"{type(error).__name__}: {error}"

    def _handle(self, event: Event, frame: FrameType | None) -> None:
        kind, op, detail, size = event[:4]
        backward = None
        # The autograd engine runs in a thread of its own; the main thread waits in backward().
        caller = backward_caller_frame()
        if frame is None or (caller is not None and user_frame(frame) is None):
            frame, backward = caller, _backward_operator()
        origin = Origin.of(frame, backward)
        self._step_tracker.on_event(origin.path)
        step = self._step_tracker.step
        # Some kinds of events are those of sites.
        site_kind = cast("Kind", kind)
        if kind in {"host_sync", "cpu_fallback"}:
            self._sites.get(site_kind, op, "", origin).add(step, 0, "")
        elif kind in {"h2d", "d2h"}:
            self._handle_copy(site_kind, detail, size, origin)
        elif kind == "collective":
            self._sites.get("collective", op, first_dtype(detail), origin).add(step, size, detail)
        elif kind == "cache_miss":
            self._pending_miss = (self._sites.get("compilation", op, _cache_miss_reason(detail), origin), detail)
        elif kind in {"compilation", "recompilation"}:
            self._handle_compilation(origin)
        elif kind == "dtype" and not _formats_tensor(frame):
            self._sites.get("dtype", op, detail, origin).add(step, 0, "")
        elif kind in _DETAILED:
            self._sites.get(site_kind, op, "", origin).add(step, 0, detail)

    def _handle_copy(self, kind: Kind, detail: str, size: int, origin: Origin) -> None:
        step = self._step_tracker.step
        tensor, _, memory = detail.rpartition(", ")
        self._sites.get(kind, "copy", memory, origin).add(step, size, tensor)
        # The device reports float64, but not int64, which only lazy mode stores as int32.
        if kind == "h2d" and first_dtype(tensor) == "int64":
            self._sites.get("dtype", "copy to device", "int64", origin).add(step, 0, "")

    def _handle_compilation(self, origin: Origin) -> None:
        counter, detail = self._pending_miss or (self._sites.get("compilation", "", "end", origin), "")
        self._pending_miss = None
        counter.add(self._step_tracker.step, 0, detail)

    def sites(self) -> tuple[Site, ...]:
        """Return the event counters per stack and cause, most frequent first."""
        with self._lock:
            return self._sites.sites()

    @property
    def dropped_events(self) -> int:
        """Number of events without a site because the limit of sites was reached."""
        return self._sites.dropped_events


def _formats_tensor(frame: FrameType | None) -> bool:
    """Return whether torch formats a tensor, for which it computes in float64."""
    while frame is not None and frame.f_globals.get("__name__") != "torch._tensor_str":
        frame = frame.f_back
    return frame is not None


def _cache_miss_reason(detail: str) -> str:
    before, arrow, after = detail.partition(" -> ")
    if not arrow:
        return "operators"
    return "arguments" if have_same_shapes(before, after) else "shapes"


def _backward_operator() -> str:
    """Return the operator of this thread's current autograd node; empty if unknown."""
    import torch

    # Added in torch 2.1.
    current_node = getattr(torch._C, "_current_autograd_node", None)  # noqa: SLF001 - no public API
    node = current_node() if current_node is not None else None
    return backward_op_name(node.name()) if node is not None else ""
