"""Line that says what a planner does while it works."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.plan.session import Options

# Clears a terminal's line.
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Progress on stderr: a line that changes on a terminal, and a line per candidate elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._candidate: Options | None = None

    def show(self, options: Options, doing: str) -> None:
        """Show what the process of a candidate does."""
        is_new = options != self._candidate
        self._candidate = options
        if not self._is_terminal and not is_new:
            return
        seconds = time.monotonic() - self._start
        line = f"planning {_describe(options)}: {doing} ({seconds:.0f} s)"
        sys.stderr.write(f"{_CLEAR}{line}" if self._is_terminal else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._is_terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def _describe(options: Options) -> str:
    """Return the rank of a candidate and what it changes."""
    changes = {
        "strategy": options.strategy,
        "precision": options.precision,
        "batch": options.batch_size,
        "recomputed blocks": options.checkpoint or None,
    }
    changed = "".join(f", {name} {value}" for name, value in changes.items() if value is not None)
    return f"rank {options.rank} of {options.world_size}{changed}"
