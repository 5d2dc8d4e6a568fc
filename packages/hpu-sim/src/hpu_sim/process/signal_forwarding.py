"""Child process with its signals forwarded, and its exit status taken over."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

# Sent by people and schedulers. SIGTSTP and SIGCONT reach the child as a member of this process group.
_SIGNALS: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Python ignores these in its own process. The child starts with the system's defaults.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command until it exits, and forward to it the signals that this thread receives.

    Returns:
        Its exit code; for a program that a signal killed, the negative signal number.
    """
    # Signals that this process ignores, as under nohup, are ignored by the child too.
    signals = {number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    # Blocked and fetched instead of handled: no signal is lost, and siginfo tells who sent it.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGCHLD})
    try:
        child = os.posix_spawn(command[0], command, environment, setsigmask=previous_mask, setsigdef=_IGNORED_BY_PYTHON)
        thread = threading.Thread(target=_report_end, args=(child, threading.get_ident()), daemon=True)
        thread.start()
        while not (status := os.waitpid(child, os.WNOHANG))[0]:
            info = signal.sigwaitinfo(signals | {signal.SIGCHLD})
            # A positive code means that the kernel sent it (Ctrl-C), to the child as well.
            if info.si_signo in signals and info.si_code <= 0:
                os.kill(child, info.si_signo)
        thread.join()
        # What was sent while the child ended would end this process, in place of the child's exit code.
        while signal.sigtimedwait(signals, 0) is not None:
            pass
        return os.waitstatus_to_exitcode(status[1])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _report_end(child: int, thread: int) -> None:
    """Send SIGCHLD to one thread when a child has ended: the system's own may be taken by any other thread."""
    # The child stays a zombie, so its id is not used again. The other thread has reaped it if the system's came first.
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        signal.pthread_kill(thread, signal.SIGCHLD)


def exit_like(exit_code: int) -> NoReturn:
    """Exit this process as a child exited."""
    if exit_code < 0:
        sys.stdout.flush()
        sys.stderr.flush()
        # The child has dumped its core already.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -exit_code != signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    sys.exit(exit_code)
