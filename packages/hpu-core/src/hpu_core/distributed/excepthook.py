"""Exception hook of rank processes, which keeps the output of a failed job short.

The rank that failed prints its traceback. On every other rank the traceback only shows where it waited.
"""

import os
import sys
import traceback
from types import TracebackType
from typing import Final

from hpu_core.distributed.failure_detection import RankFailedError

__all__ = ["SHORT_ERRORS", "install"]

SHORT_ERRORS: Final = "HPU_SHORT_ERRORS"
"""Environment variable that reduces every error of a rank process to its last line when it is "1"."""


def install() -> None:
    """Print RankFailedError, and with HPU_SHORT_ERRORS=1 every error, without a traceback when it ends the process.

    Idempotent, and without effect if the program has a hook of its own. torch wraps it once there is a process group,
    and puts the rank in front of each line.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_error


def _print_error(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    if isinstance(error, RankFailedError) or os.environ.get(SHORT_ERRORS) == "1":
        sys.stderr.write("".join(traceback.format_exception_only(kind, error)))
    else:
        sys.__excepthook__(kind, error, frames)
