"""Sites of a process: the device's events by stack, cause and training step, in bounded memory."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hpu_sim.common.formatting import backward_op_name, first_dtype, format_dtypes, have_same_shapes
from hpu_sim.common.frames import TRANSPARENT, backward_caller_frame, call_path, describe_stack, package, user_frame
from hpu_sim.report.schema import Site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.common.frames import CallPath
    from hpu_sim.device.events import Event
    from hpu_sim.prediction.steps import StepTracker

#: Maximum number of sites; events of further ones are only counted in total.
MAX_SITES: Final = 1000
# Call paths whose site is cached; a site has several.
_MAX_CACHED: Final = 4 * MAX_SITES
_LIGHTNING: Final = ("lightning.", "pytorch_lightning.")


class _Origin(NamedTuple):
    """Origin of an event: its innermost frame, None without Python, and in a backward pass the forward operator."""

    frame: FrameType | None
    path: CallPath
    backward: str | None


class SiteRecorder:
    """Recorder of the device events and optimizer steps of one process.

    No event raises: a bug in here must not stop the program. The first exception ends recording instead.

    Args:
        steps: Tracker of the program's steps, which this drives.

    Attributes:
        recording_error: Exception that ended recording, if any.
        dropped_events: Number of events without a site because there are :data:`MAX_SITES` sites already.
    """

    def __init__(self, steps: StepTracker) -> None:
        self.recording_error: str | None = None
        self.dropped_events = 0
        # Reentrant, because a signal handler may run during an event and use the device.
        self._lock = threading.RLock()
        self._steps = steps
        self._sites: dict[tuple[object, ...], Site] = {}
        # By the hash of the call path. The code objects are kept alive because the path has their ids.
        self._cache: dict[tuple[str, str, str, str | None, int], tuple[Site, list[CodeType]]] = {}
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
                    self._steps.on_optimizer_step(event.arguments[0], call_path(frame))
                else:
                    self._count(event, frame)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            self.recording_error = f"{type(error).__name__}: {error}"

    def _count(self, event: Event, frame: FrameType | None) -> None:
        kind, op, detail, size = event[:4]
        backward = None
        # The autograd engine runs in a thread of its own; the main thread waits in backward().
        caller = backward_caller_frame()
        if frame is None or (caller is not None and user_frame(frame) is None):
            frame, backward = caller, _backward_operator()
        origin = _Origin(frame, call_path(frame), backward)
        self._steps.on_event(origin.path)
        step = self._steps.step
        if kind in {"h2d", "d2h"}:
            tensor, _, memory = detail.rpartition(", ")
            self._site(kind, "copy", memory, origin).add(step, size, tensor)
        elif kind == "collective":
            self._site("collective", op, first_dtype(detail), origin).add(step, size, detail)
        elif kind == "cache_miss":
            # It counts once the graph ends.
            self._pending_miss = self._site("compilation", op, _cache_miss_reason(detail), origin), detail
        elif kind in {"compilation", "recompilation"}:
            site, difference = self._pending_miss or (self._site("compilation", "", "end", origin), "")
            self._pending_miss = None
            site.add(step, 0, difference)
        elif kind != "dtype":
            self._site(kind, op, "", origin).add(step, 0, detail)
        elif not _formats_tensor(frame):
            self._site("dtype", op, detail, origin).add(step, 0, "")

    def _site(self, kind: str, op: str, variant: str, origin: _Origin) -> Site:
        """Return the site of an event; a new one that is not kept if there are too many."""
        key = (kind, op, variant, origin.backward, hash(origin.path))
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        user = user_frame(origin.frame)
        stack, index = describe_stack(origin.frame, user)
        new = Site(kind, op, variant, origin.backward, find_cause(origin.frame, user), index, stack)
        site = self._sites.get(new.key)
        if site is None and len(self._sites) >= MAX_SITES:
            self.dropped_events += 1
            return new
        site = self._sites.setdefault(new.key, new)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = site, _code_objects(origin.frame)
        return site

    def sites(self) -> tuple[Site, ...]:
        """Return the sites with events, most frequent first."""
        with self._lock:
            found = sorted((each for each in self._sites.values() if each.count), key=lambda each: -each.count)
            return tuple(
                dataclasses.replace(each, examples=[format_dtypes(text) for text in each.examples]) for each in found
            )


def find_cause(frame: FrameType | None, user: FrameType | None) -> str:
    """Return the part of a framework that caused an event.

    Returns:
        In order of preference: the method of a callback or logger, the innermost method, the innermost function; empty
        if the program itself called torch.
    """
    hook = method = function = ""
    while frame is not None and frame is not user:
        if package(frame) not in TRANSPARENT:
            owner = frame.f_locals.get("self")
            name = frame.f_code.co_name
            if owner is not None:
                qualified = f"{type(owner).__name__}.{name}"
                # The outermost method of a callback is its hook.
                hook = qualified if _is_callback(owner) else hook
                method = method or qualified
            function = function or f"{frame.f_globals.get('__name__')}.{name}"
        frame = frame.f_back
    return hook or method or function


def _is_callback(owner: Any) -> bool:
    return any(
        base.__name__ in {"Callback", "Logger"} and base.__module__.startswith(_LIGHTNING)
        for base in type(owner).__mro__
    )


def _code_objects(frame: FrameType | None) -> list[CodeType]:
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found


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
