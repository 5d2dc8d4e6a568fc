"""Uncaught exception of the current process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hpu_sim.common.frames import describe_frame
from hpu_sim.report.schema import UncaughtError

if TYPE_CHECKING:
    from types import TracebackType

    from hpu_sim.common.frames import Frame

#: Maximum length of the message.
MAX_MESSAGE: Final = 1000


def get_uncaught_error() -> UncaughtError | None:
    """Return the uncaught exception that ended the main thread, if any.

    ``sys.exit()`` does not count. Python keeps the exception in ``sys.last_value``, so no hook is needed.
    """
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return None
    return UncaughtError(type(error).__name__, str(error)[:MAX_MESSAGE], _last_user_frame(error.__traceback__))


def _last_user_frame(traceback: TracebackType | None) -> Frame | None:
    found = None
    while traceback is not None:
        frame = describe_frame(traceback.tb_frame, traceback.tb_lineno)
        if frame.is_user:
            found = frame
        traceback = traceback.tb_next
    return found
