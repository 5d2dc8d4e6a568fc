"""Clock of one rank's progress: the training thread notes where it is, and records an event behind each step.

On a card a collective is enqueued, and the host goes on; only an event tells when the device has finished a step. The
training thread records events, because recording takes part in the launch of work; any thread may ask an event.
"""
# hpu-doctor verify: barrier-never-times-out

import contextlib
import mmap
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final

from hpu_core.distributed.failure_detection import SCOPES, Heartbeat, Progress

# Indices of the shared cells; the last heartbeat follows as text.
_CELLS: Final = {name: index for index, name in enumerate((*Progress._fields, "beat", "size"))}
_TEXT: Final = 1 << 10
_MEMORY: Final = 1 << 16
_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
# Modules of torch whose functions wait for other ranks.
_WAITING: Final = ("torch.distributed.", "torch.nn.parallel.")


class StepClock:
    """Progress of the host and the device of this rank.

    Args:
        make_event: Makes an event of the device; None where there is no device.

    Attributes:
        cells: Memory that a forked process shares: the fields of `Progress`, and a counter of heartbeats.
    """

    def __init__(self, make_event: Callable[[], Any] | None = None) -> None:
        self._memory = mmap.mmap(-1, _MEMORY)
        self.cells = memoryview(self._memory)[:_TEXT].cast("q")
        self._make_event = make_event
        self._pending: deque[Any] = deque()
        self._asking = threading.Lock()
        self._thread: int | None = None

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        return Progress(*self.cells[: len(Progress._fields)])

    def reset(self) -> None:
        """Begin anew: the ranks of a training are at the same place."""
        self._pending.clear()
        self._set(**dict.fromkeys(Progress._fields, 0))

    def publish(self, heartbeat: Heartbeat) -> None:
        """Note that the threads of this process run, and what they last had to say."""
        text = heartbeat.to_json().encode()[: _MEMORY - _TEXT]
        self._memory[_TEXT : _TEXT + len(text)] = text
        self._set(size=len(text), beat=self.beats + 1)

    @property
    def published(self) -> Heartbeat | None:
        """The last heartbeat that was published; None if it is too long, or there is none."""
        try:
            return Heartbeat.from_json(self._memory[_TEXT : _TEXT + self.cells[_CELLS["size"]]])
        except ValueError:
            return None

    @property
    def beats(self) -> int:
        """How often `publish` was called."""
        return self.cells[_CELLS["beat"]]

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Note that the training thread is in one of `SCOPES`; behind the outermost one, record an event.

        What fails is not counted, so that a rank with an error is behind those that go on.
        """
        before = self.progress
        self._enter(name, before)
        try:
            yield
        except BaseException:
            self._set(moves=self.progress.moves + 1, **{key: getattr(before, key) for key in _RESTORED})
            raise
        self._leave(name, before)
        if not before.scope:
            self.record()

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Count a call in which the host waits for all ranks."""
        self._thread = threading.get_ident()
        self._set(moves=self.progress.moves + 1, waits=self.progress.waits + 1)
        try:
            yield
        except BaseException:
            self._set(waits=self.progress.waits - 1)
            raise
        finally:
            self._set(moves=self.progress.moves + 1)

    def record(self) -> None:
        """Record an event behind the work that the training thread has launched."""
        if self._make_event is None:
            return
        try:
            event = self._make_event()
            event.record()
        except RuntimeError:
            # What the device refuses is for the training to report.
            self._make_event = None
            return
        with self._asking:
            self._pending.append(event)
        self._set(recorded=self.progress.recorded + 1)
        self.ask()

    def ask(self) -> None:
        """Ask which events the device has reached."""
        with self._asking:
            while self._pending and self._pending[0].query():
                self._pending.popleft()
                self._set(finished=self.progress.finished + 1)

    def locate(self) -> tuple[str | None, str | None]:
        """Return the function of torch.distributed that the training thread is in, and its line of the program."""
        innermost = frame = self._frame()
        call = None
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(("torch.", "contextlib")):
            if str(frame.f_globals["__name__"]).startswith(_WAITING):
                call = frame.f_code.co_name
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, "<")):
            frame = frame.f_back
        return call, _describe(frame or innermost)

    def place_in_code(self) -> tuple[CodeType, int] | None:
        """Return what changes as long as Python runs on the training thread."""
        frame = self._frame()
        # CPython makes another frame object for each look.
        return None if frame is None else (frame.f_code, frame.f_lasti)

    def _frame(self) -> FrameType | None:
        # CPython's only way to the frames of another thread.
        return None if self._thread is None else sys._current_frames().get(self._thread)  # noqa: SLF001

    def _enter(self, name: str, before: Progress) -> None:
        self._thread = threading.get_ident()
        steps, batch, stage = before.place
        if name == "training step":
            batch, stage = batch + 1, 1
        elif name == "backward":
            # Fabric has no hook around the forward pass.
            batch, stage = batch + (stage != 1), 2
        self._set(moves=before.moves + 1, steps=steps, batch=batch, stage=stage, scope=SCOPES.index(name))

    def _leave(self, name: str, before: Progress) -> None:
        now = self.progress
        steps, batch, stage = now.place
        if name == "optimizer step":
            steps, batch, stage = steps + 1, 0, 0
        self._set(moves=now.moves + 1, steps=steps, batch=batch, stage=stage, scope=before.scope)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self.cells[_CELLS[name]] = value


_RESTORED: Final = ("steps", "batch", "stage", "scope")


def _describe(frame: FrameType | None) -> str | None:
    if frame is None:
        return None
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"
