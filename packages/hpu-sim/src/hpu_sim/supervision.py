"""Run a program as a child, and be to the outside what the program is: its signals, its exit code."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

# What people and schedulers send. Signals that stop and continue reach the child as a member of this process group.
_FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Python ignores these for itself; a program starts with the system's defaults.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, passing on the signals that this process gets.

    Args:
        command: Path of the program and its arguments.
        environment: All its variables.

    Returns:
        Its exit code; for a program that a signal ended, the negative number of that signal.
    """
    # A signal that this process was told to ignore, as under nohup, is ignored by the child, too.
    wanted = {number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN}
    # Blocked and fetched one by one rather than handled, so that none is lost and it is seen where each comes from.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted | {signal.SIGCHLD})
    try:
        child = os.posix_spawn(command[0], command, environment, setsigmask=before, setsigdef=_IGNORED_BY_PYTHON)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            info = signal.sigwaitinfo(wanted | {signal.SIGCHLD})
            # What the keyboard sends (Ctrl-C) the system sends to the child as well; its code is positive.
            if info.si_signo in wanted and info.si_code <= 0:
                os.kill(child, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_like(exit_code: int) -> NoReturn:
    """End this process as the child ended.

    Args:
        exit_code: As :func:`run` returned it.
    """
    if exit_code < 0:
        sys.stdout.flush()
        sys.stderr.flush()
        # One core dump, the child's, is enough.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -exit_code != signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    sys.exit(exit_code)
