"""How a process ended: the error that nobody caught."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hpu_sim.report.frames import FrameClassifier
from hpu_sim.report.schema import UncaughtError

if TYPE_CHECKING:
    from types import TracebackType

    from hpu_sim.report.schema import Frame

#: Characters of an error's text that are kept.
MAX_MESSAGE: Final = 1000


def get_uncaught_error() -> UncaughtError | None:
    """Return the error that Python has just printed because nobody caught it; None where there is none.

    ``sys.exit()`` is no error. No hook is needed: Python keeps the error for debuggers.
    """
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return None
    return UncaughtError(type(error).__name__, str(error)[:MAX_MESSAGE], _last_user_frame(error.__traceback__))


def _last_user_frame(traceback: TracebackType | None) -> Frame | None:
    classifier = FrameClassifier()
    found = None
    while traceback is not None:
        frame = classifier.to_frame(traceback.tb_frame, traceback.tb_lineno)
        if frame.is_user:
            found = frame
        traceback = traceback.tb_next
    return found
