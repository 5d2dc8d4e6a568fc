"""Log of torch's C++ code, whose level torch reads from TORCH_CPP_LOG_LEVEL at the start of the process alone."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Final

import torch

# Global variable of torch's; a test looks for it in every torch. Its default is that warnings are printed.
LEVEL: Final = "FLAGS_caffe2_log_level"
_WARNING: Final = 1
_FATAL: Final = 3

_lock = threading.Lock()
_depth = 0


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Print nothing of torch's C++ code meanwhile, unless TORCH_CPP_LOG_LEVEL asks for another level than the default.

    torch's store prints a trace of 26 lines of each request and connection that fails: on every rank, when rank 0 dies.
    It raises an error as well.
    """
    _nest(1)
    try:
        yield
    finally:
        _nest(-1)


def _nest(change: int) -> None:
    global _depth  # noqa: PLW0603 - torch has one level per process.
    with _lock:
        # Looked up under the lock: a level that another thread has just set is not the user's.
        level = _level()
        _depth += change
        if level is not None:
            level.value = _FATAL if _depth else _WARNING


@functools.cache
def _level() -> ctypes.c_int | None:
    """Return torch's level; None if the user has set another one, or torch logs in another way."""
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(torch._C.__file__), LEVEL)  # noqa: SLF001 - torch's library.
    except (OSError, ValueError):
        return None
    return level if level.value == _WARNING else None
