"""Processes that are ended at a chosen moment of a save, and disks that are full."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import resource
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KILLED = 9
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}


def end_before_change(number: int) -> None:
    """End this process before its n-th change of a folder."""
    changes = itertools.count()

    def end(event: str, _: tuple[Any, ...]) -> None:
        if event in _CHANGES and next(changes) == number:
            os._exit(_KILLED)

    sys.addaudithook(end)


def end_beyond(size: int) -> None:
    """Let the kernel end this process once it writes more than some bytes to a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    for limit, value in ((resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


def is_killed(moment: Callable[[], None], function: Callable[[], object]) -> bool:
    """Call a function in a forked process, which ends at a moment, and return whether it does so before the return."""
    child = os.fork()
    if not child:
        try:
            moment()
            function()
        except BaseException:  # noqa: BLE001 - the process must not run the rest of the tests.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, _KILLED, -signal.SIGXFSZ}
    return code != 0


def kills(prepare: Callable[[], object], function: Callable[[], object]) -> Iterator[int]:
    """Yield the number of each change of a folder before which a process that calls a function has been ended."""
    for number in itertools.count():
        prepare()
        if not is_killed(functools.partial(end_before_change, number), function):
            return
        yield number


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Limit files to some bytes; writing more fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
