"""Log of torch's C++ code, whose level torch reads from TORCH_CPP_LOG_LEVEL at the start of the process alone."""

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Final

import torch

__all__ = ["LEVEL", "without_warnings"]

# Global variable of torch's; a test looks for it in every torch. Its default is that warnings are printed.
LEVEL: Final = "FLAGS_caffe2_log_level"
_WARNING: Final = 1
_ERROR: Final = 2


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Print no warnings of torch's C++ code meanwhile, unless TORCH_CPP_LOG_LEVEL asks for more than warnings.

    torch's store prints a trace of 26 lines of each request that fails: on every rank, when rank 0 dies. It raises an
    error as well.
    """
    level = _level()
    if level is None or level.value != _WARNING:
        yield
        return
    level.value = _ERROR
    try:
        yield
    finally:
        level.value = _WARNING


@functools.cache
def _level() -> ctypes.c_int | None:
    """Return torch's level; None of a torch that logs in another way."""
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(torch._C.__file__), LEVEL)  # noqa: SLF001 - torch's library.
    except (OSError, ValueError):
        return None
