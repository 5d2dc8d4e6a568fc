"""Clock of one rank's progress, in memory that it shares with its guard.

On a card a collective is enqueued, and the host goes on; only an event shows when the device has finished a step. The
training thread records events, because recording takes part in the launch of work; any thread may ask an event.
"""
# hpu-doctor verify: barrier-never-times-out

import contextlib
import itertools
import mmap
import os
import sys
import sysconfig
import threading
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from hpu_core.distributed.failure_detection import SCOPES, Heartbeat, Progress

# Cells of the shared memory: the progress, then what rank and guard send each other.
_CELLS: Final = {
    name: index
    for index, name in enumerate((*Progress._fields, "signals", "activity", "instruction", "order", "read", "others"))
}
_CELL_BYTES: Final = 1 << 10
_MAX_TEXT: Final = 1 << 15
_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
# Modules of torch whose functions wait for other ranks.
_WAITING: Final = ("torch.distributed.", "torch.nn.parallel.")
# What a step that fails does not change, so that the place of its rank is before those that go on.
_RESTORED: Final = ("steps", "batch", "stage", "scope")


class Slot:
    """Heartbeat in shared memory that one process writes and another reads."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._cells = memoryview(memory)[start : start + 16].cast("q")
        self._text = memoryview(memory)[start + 16 : start + _MAX_TEXT]
        self._read = 0
        self._last = Heartbeat()

    @property
    def version(self) -> int:
        """Number that changes with each write."""
        return self._cells[0]

    def write(self, heartbeat: Heartbeat) -> None:
        """Replace the heartbeat, if it is another one."""
        if heartbeat == self._last:
            return
        self._last = heartbeat
        text = heartbeat.to_json().encode()[: len(self._text)]
        # Odd while it changes.
        self._cells[0] += 1
        self._text[: len(text)] = text
        self._cells[1] = len(text)
        self._cells[0] += 1

    def read(self) -> Heartbeat:
        """Return the last heartbeat that was written; the one before while it changes."""
        version = self.version
        if version != self._read and not version % 2:
            text = bytes(self._text[: self._cells[1]])
            if version == self.version:
                with contextlib.suppress(ValueError):
                    self._last = Heartbeat.from_json(text)
                self._read = version
        return self._last


class StepClock:
    """Progress of the host and the device of this rank.

    Args:
        make_event: Makes an event of the device; None where there is no device.

    Attributes:
        from_rank: What the rank sends, but for its progress and its signals.
        from_guard: What the guard sends: the heartbeat of rank 0, of this training.
        wakeup_reader: Descriptor that is readable when the guard has to read what the rank sends.
    """

    def __init__(self, make_event: Callable[[], Any] | None = None) -> None:
        memory = mmap.mmap(-1, _CELL_BYTES + 2 * _MAX_TEXT)
        self._cells = memoryview(memory)[:_CELL_BYTES].cast("q")
        self.from_rank, self.from_guard = Slot(memory, _CELL_BYTES), Slot(memory, _CELL_BYTES + _MAX_TEXT)
        self.wakeup_reader, self._wakeup_writer = os.pipe()
        for descriptor in (self.wakeup_reader, self._wakeup_writer):
            os.set_blocking(descriptor, False)
        self._make_event = make_event
        self._pending: deque[Any] = deque()
        self._query_lock = threading.Lock()
        self._thread: int | None = None

    def __getitem__(self, name: str) -> int:
        return self._cells[_CELLS[name]]

    def __setitem__(self, name: str, value: int) -> None:
        self._cells[_CELLS[name]] = value

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        return Progress(*self._cells[: len(Progress._fields)])

    @property
    def signals(self) -> tuple[int, ...]:
        """Signals that the rank has received, and not handled."""
        return tuple(signum for signum in range(1, 63) if self["signals"] >> signum & 1)

    def reset(self) -> None:
        """Begin anew: the ranks of a training are at the same place."""
        self._pending.clear()
        for name in _CELLS:
            self[name] = 0

    def notify_guard(self) -> None:
        """Have the guard read what is here. A signal handler may call this."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_writer, b"\0")

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Note that the training thread is in one of `SCOPES`; after the outermost, complete one, record an event."""
        self._thread = threading.get_ident()
        before = self.progress
        _, batch, stage = before.place
        if name == "training step":
            batch, stage = batch + 1, 1
        elif name == "backward":
            # A program of Fabric may compute its loss without a module of Fabric's.
            batch, stage = batch + (stage != 1), 2
        self._set(moves=before.moves + 1, batch=batch, stage=stage, scope=SCOPES.index(name))
        try:
            yield
        except BaseException:
            self._set(moves=self["moves"] + 1, **{key: getattr(before, key) for key in _RESTORED})
            raise
        if name == "optimizer step":
            self._set(steps=self["steps"] + 1, batch=0, stage=0)
        self._set(moves=self["moves"] + 1, scope=before.scope)
        # In lazy mode, an event would end the graph of a forward pass, which goes on in the backward pass.
        is_open = name == "evaluation forward" or (name == "training step" and self["stage"] == 1)
        if not before.scope and not is_open:
            self.record()

    @contextlib.contextmanager
    def wait(self, name: str) -> Iterator[None]:
        """Count a call in which the host waits for all ranks, such as "barrier"."""
        self._thread = threading.get_ident()
        self.set_wait(name)
        self._set(moves=self["moves"] + 1, waits=self["waits"] + 1)
        try:
            yield
        except Exception:
            # A KeyboardInterrupt is raised when the call has ended, and the other ranks have gone on.
            self["waits"] -= 1
            raise
        finally:
            self["moves"] += 1

    def set_wait(self, name: str) -> None:
        """Note what the host waits for next."""
        self["wait"] = zlib.crc32(name.encode())

    def record(self) -> bool:
        """Record an event after the work that the training thread has launched; return whether the device has one."""
        if self._make_event is None:
            return False
        try:
            event = self._make_event()
            event.record()
        except RuntimeError:
            # What the device refuses is for the training to report.
            self._make_event = None
            return False
        with self._query_lock:
            self._pending.append(event)
        self["recorded"] += 1
        self.query_events()
        return True

    def query_events(self) -> None:
        """Ask which events the device has reached."""
        with self._query_lock:
            while self._pending and self._pending[0].query():
                self._pending.popleft()
                self["finished"] += 1

    def find_call(self) -> tuple[str | None, str | None]:
        """Return the function of torch.distributed that the training thread is in, and its line of the program."""
        frame = self._frame()
        frames = [] if frame is None else [each for each, _ in traceback.walk_stack(frame)]
        call = None
        for each in itertools.takewhile(_is_of_torch, frames):
            name = str(each.f_globals.get("__name__"))
            # torch wraps its collectives to log them.
            if name.startswith(_WAITING) and name != "torch.distributed.c10d_logger":
                call = each.f_code.co_name
        own = (
            each
            for each in frames
            if not each.f_code.co_filename.startswith((*_LIBRARIES, "<")) and not _is_of_torch(each)
        )
        return call, _describe(next(own, frame))

    def record_activity(self) -> None:
        """Note that Python's threads run, and the place in the code, which changes if the training thread runs it."""
        frame = self._frame()
        # CPython makes another frame object for each look.
        self["instruction"] = hash(None if frame is None else (frame.f_code, frame.f_lasti))
        self["activity"] += 1

    def _frame(self) -> FrameType | None:
        # CPython's only way to the frames of another thread.
        return None if self._thread is None else sys._current_frames().get(self._thread)  # noqa: SLF001

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self[name] = value


def _is_of_torch(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("torch.", "contextlib"))


def _describe(frame: FrameType | None) -> str | None:
    if frame is None:
        return None
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"
