"""Progress of this rank's host, which the training thread writes and the monitor's thread reads.

Plain attributes: nothing here asks the device. On a card the host runs ahead, so the rank behind shows by its host.
"""

import contextlib
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Final

from hpu_core.distributed import processes

END_OF_EPOCH: Final = "the end of an epoch"
"""Name of the wait in which the ranks end an epoch of training together."""
BARRIER: Final = "barrier"
"""Name of the wait in which the host of a rank waits for those of all others."""
END_OF_PROGRAM: Final = "the end of its program"
"""Name of the wait in which a rank that has ended its program waits for all others."""

_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_DEBUGGERS: Final = frozenset({"bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy"})


class Progress:
    """How far the host is; created on the training thread.

    Attributes:
        place: Twice the number of optimizer steps that it has finished, and one more once it has entered the next, by a
            forward pass of training or what follows.
        scope: What it is in, such as "backward", "evaluation step" or "setup"; empty outside of all.
        waits: How many calls that wait for all ranks it has entered.
        wait: Name of the one that it is in, such as "barrier"; None outside.
        moves: How often any of these has changed.
    """

    def __init__(self) -> None:
        self.place = self.waits = self.moves = 0
        self.scope = ""
        self.wait: str | None = None
        self._thread, self._thread_id = threading.get_ident(), threading.get_native_id()

    def signs(self) -> object:
        """Return what changes while the host works: its place, the lines that it runs, and what it reads and writes."""
        if self.wait is not None:
            # It may look for an answer again and again.
            return self.moves
        frames, folder = self._frames(), Path(f"/proc/self/task/{self._thread_id}")
        modules = {str(each.f_globals.get("__name__")).partition(".")[0] for each in frames}
        # A disk or a debugger holds it, for however long.
        if modules & _DEBUGGERS or processes.state(folder) == "D":
            return object()
        lines = [(each.f_code, each.f_lineno) for each in frames]
        with contextlib.suppress(OSError):
            return self.moves, lines, (folder / "io").read_bytes()
        return self.moves, lines

    def line(self) -> str:
        """Return the program's line where the host is, "train.py:31 in load"; empty if it has ended."""
        frames = self._frames()
        own = (each for each in frames if not each.f_code.co_filename.startswith((*_LIBRARIES, "<")))
        for each in (*own, *frames):
            return f"{Path(each.f_code.co_filename).name}:{each.f_lineno} in {each.f_code.co_name}"
        return ""

    def _frames(self) -> list[FrameType]:
        # CPython's only way to the frames of another thread.
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001
        return [] if frame is None else [each for each, _ in traceback.walk_stack(frame)]
