"""Time limits of tests by kind: what runs in the test's own process, and programs that it starts.

A test has the limit of pyproject.toml, and `PROGRAM` from each moment at which it starts a process or calls ranks. A
marker ``timeout`` with a longer limit stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM: Final = 120.0
"""Seconds for a program, from its start."""

_STARTS: Final = {"subprocess.Popen", "os.fork", "os.posix_spawn"}

restarts: Final[list[Callable[[], None]]] = []
"""Function that restarts the limit of the running test; none while there is no such test."""


def allow_for_program() -> None:
    """Restart the limit of the running test, if there is one, as that of a program."""
    for restart in restarts:
        restart()


def notice_start(event: str, _: tuple[Any, ...]) -> None:
    """Allow for a program where this process starts one; for `sys.addaudithook`."""
    if event in _STARTS:
        allow_for_program()
