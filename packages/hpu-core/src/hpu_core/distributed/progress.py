"""Progress of this rank's host, which the training thread writes and the monitor's thread reads.

Plain attributes: nothing here asks the device. On a card the host runs ahead, so the rank behind shows by its host.
"""

import contextlib
import itertools
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

END_OF_EPOCH: Final = "the end of an epoch"
"""Name of the wait in which the ranks end an epoch of training together."""

_TRAINING: Final = frozenset({"training step", "backward", "optimizer step"})
_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_DEBUGGERS: Final = frozenset({"bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy"})


class Progress:
    """How far the host is.

    Attributes:
        steps: Optimizer steps that it has finished.
        has_entered: Whether it has entered the next one, by a forward pass of training or what follows.
        scope: What it is in, such as "backward", "evaluation step" or "setup"; empty outside of all.
        waits: How many calls that wait for all ranks it has entered.
        wait: Name of the one that it is in, such as "barrier"; None outside.
        batches: Batches of the epoch that it has ended, in the wait `END_OF_EPOCH`.
        moves: How often any of these has changed.
    """

    def __init__(self) -> None:
        self.steps = self.waits = self.batches = self.moves = 0
        self.has_entered = False
        self.scope = ""
        self.wait: str | None = None
        self._thread, self._thread_id = threading.get_ident(), threading.get_native_id()

    @contextlib.contextmanager
    def step(self, scope: str) -> Iterator[None]:
        """Note that the training thread is in a scope; one that fails leaves the rank in the same place."""
        before, self.scope, self.moves = (self.scope, self.has_entered), scope, self.moves + 1
        self.has_entered |= scope in _TRAINING
        try:
            yield
        except BaseException:
            self.has_entered = before[1]
            raise
        else:
            if scope == "optimizer step":
                self.steps, self.has_entered = self.steps + 1, False
        finally:
            self.scope, self.moves = before[0], self.moves + 1

    @contextlib.contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Note that the training thread waits for all ranks."""
        before, self.wait = self.wait, name
        self.waits, self.moves = self.waits + 1, self.moves + 1
        try:
            yield
        finally:
            self.wait, self.moves = before, self.moves + 1

    def signs(self) -> object:
        """Return what changes while the host works: its place, the lines that it runs, and what it reads and writes."""
        if self.wait is not None:
            # It may look for an answer again and again.
            return self.moves
        lines = tuple((id(frame.f_code), frame.f_lineno) for frame in self._frames())
        return self.moves, lines, *_read_io(self._thread_id)

    def describe(self) -> tuple[str, bool]:
        """Return the program's line where the host is, "train.py:31 in load", and whether it is in a debugger."""
        frames = self._frames()
        own = (each for each in frames if not each.f_code.co_filename.startswith((*_LIBRARIES, "<")))
        frame = next(own, frames[0] if frames else None)
        is_debugged = any(str(each.f_globals.get("__name__")).partition(".")[0] in _DEBUGGERS for each in frames)
        if frame is None:
            return "", is_debugged
        file = frame.f_code.co_filename.rpartition("/")[2]
        return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}", is_debugged

    def _frames(self) -> list[FrameType]:
        # CPython's only way to the frames of another thread.
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001
        return [] if frame is None else [each for each, _ in traceback.walk_stack(frame)]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP."""
    return _state(f"/proc/{pid}/stat") == "T"


def _state(path: str) -> str:
    with contextlib.suppress(OSError):
        # The name before the state may have spaces and parentheses.
        return Path(path).read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    return ""


_clock = itertools.count()


def _read_io(thread: int) -> tuple[object, ...]:
    """Return what a thread has read and written so far, and another number at each call while a disk holds it."""
    folder = f"/proc/{os.getpid()}/task/{thread}"
    number = next(_clock) if _state(f"{folder}/stat") == "D" else 0
    with contextlib.suppress(OSError):
        return number, Path(folder, "io").read_bytes()
    return (number,)
