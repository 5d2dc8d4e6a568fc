"""Uncaught exception of the current process."""

from __future__ import annotations

import sys
from typing import Final

from hpu_sim.common.frames import describe_frame, program_tracebacks
from hpu_sim.report.schema import UncaughtError

#: Maximum length of the message.
MAX_MESSAGE: Final = 1000


def get_uncaught_error() -> UncaughtError | None:
    """Return the uncaught exception that ended the main thread, if any.

    ``sys.exit()`` does not count. Python keeps the exception in ``sys.last_value``, so no hook is needed.
    """
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return None
    frame = None
    for part in program_tracebacks(error.__traceback__):
        frame = describe_frame(part.tb_frame, part.tb_lineno)
    return UncaughtError(type(error).__name__, str(error)[:MAX_MESSAGE], frame)
