"""Errors of ranks in words, and the exception hook that keeps the output of a failed job short."""

import contextlib
import functools
import sys
import traceback
from types import TracebackType
from typing import Any, Final

_MAX_LENGTH: Final = 2000


class RankFailedError(RuntimeError):
    """Another rank of the job died, failed, exited early or hangs; the message names it."""


def describe_error(error: BaseException) -> str:
    """Return an error in words: "ValueError: invalid batch"."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:_MAX_LENGTH]


def print_line(message: str) -> None:
    """Write a line to the standard error."""
    # Whatever read our output may be what died.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def install_hook() -> None:
    """Print RankFailedError without a traceback when it ends the process.

    Idempotent, and without effect if the program has a hook of its own. torch wraps it once there is a process group,
    and puts the rank in front of each line.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = functools.partial(_print_error, sys.excepthook)


def _print_error(previous: Any, kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    if isinstance(error, RankFailedError):
        sys.stderr.write("".join(traceback.format_exception_only(kind, error)))
    else:
        previous(kind, error, frames)
