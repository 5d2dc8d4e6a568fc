"""Exception hook of rank processes, which keeps the output of a failed job short.

The rank that failed prints its traceback. On every other rank the traceback only shows where it waited, and an error
that several ranks raise at the same place has the same traceback on each of them.
"""

import contextlib
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from hpu_core.distributed import cpp_log
from hpu_core.distributed.failure_detection import RankFailedError
from hpu_core.distributed.store import MAX_REPORTS

SHORT_ERRORS: Final = "HPU_SHORT_ERRORS"
"""Environment variable that reduces every error of a rank process to its last line when it is "1"."""

# How long to wait for the store, whose process may hang.
_STORE_TIMEOUT: Final = 5.0

# Attribute of an error: how many ranks have raised it at the same place.
_NUMBER: Final = "_hpu_number"

_add: Callable[[str, int], int] | None = None


def install(add: Callable[[str, int], int] | None = None) -> None:
    """Print some errors without a traceback when they end the process.

    These are RankFailedError, an error that another rank has raised at the same place, and with HPU_SHORT_ERRORS=1
    every error. What many ranks raise is printed by a few of them. Idempotent, and without effect if the program has a
    hook of its own. torch wraps it once there is a process group, and puts the rank in front of each line.

    Args:
        add: The method `add` of a store that all ranks share, which counts the ranks that raise an error.
    """
    global _add  # noqa: PLW0603 - a process has one exception hook.
    _add = add or _add
    # The backport of exception groups, which Lightning 2.0 imports on Python 3.10, has a hook that prints them.
    is_backport = str(getattr(sys.excepthook, "__module__", "")).startswith("exceptiongroup.")
    if sys.excepthook is sys.__excepthook__ or is_backport:
        sys.excepthook = functools.partial(_print_error, sys.excepthook)


def is_repeated(error: BaseException) -> bool:
    """Return whether enough other ranks print an error that all of them raise."""
    return getattr(error, "is_reported", False) or _number(error) > MAX_REPORTS


def _print_error(
    previous: Callable[..., object], kind: type[BaseException], error: BaseException, frames: TracebackType | None
) -> None:
    if is_repeated(error):
        return
    if isinstance(error, RankFailedError) or os.environ.get(SHORT_ERRORS) == "1" or _number(error) > 1:
        sys.stderr.write("".join(traceback.format_exception_only(kind, error)))
    else:
        previous(kind, error, frames)


def _number(error: BaseException) -> int:
    """Return how many ranks have raised an error of this type at this place; 1 if the store is gone."""
    if _add is None or error.__traceback__ is None or isinstance(error, RankFailedError):
        return 1
    if _NUMBER not in vars(error):
        place = traceback.extract_tb(error.__traceback__)[-1]
        key = f"error/{type(error).__qualname__}/{place.filename}:{place.lineno}"
        thread = threading.Thread(target=_count, args=(_add, key, vars(error)), daemon=True)
        thread.start()
        thread.join(_STORE_TIMEOUT)
    return int(vars(error).setdefault(_NUMBER, 1))


def _count(add: Callable[[str, int], int], key: str, found: dict[str, Any]) -> None:
    # The store closes with the process of rank 0.
    with contextlib.suppress(RuntimeError), cpp_log.silence():
        found[_NUMBER] = add(key, 1)
