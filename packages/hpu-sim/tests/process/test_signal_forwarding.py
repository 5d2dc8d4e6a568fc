"""Signals and exit codes of a child process."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.process import signal_forwarding

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

# The parent, whose child prints a line when it is ready.
_PARENT: Final = """
import os, sys
from hpu_sim.process import signal_forwarding

child = '''
import signal, sys
{child}
print("ready", flush=True)
{wait}
'''
signal_forwarding.exit_like(signal_forwarding.run([sys.executable, "-c", child], os.environ))
"""


@pytest.fixture
def start_parent(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts a parent, and waits until its child is ready."""
    if signal.SIG_IGN in {signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}:
        pytest.skip("under nohup or in the background, the suite and its subprocesses ignore some signals")

    def start(child: str, wait: str = "signal.pause()") -> subprocess.Popen[str]:
        process = start_python("-c", _PARENT.format(child=child, wait=wait))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    return start


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_returned(code: int) -> None:
    assert signal_forwarding.run([sys.executable, "-S", "-c", f"raise SystemExit({code})"], os.environ) == code


def test_death_by_a_signal_is_a_negative_exit_code() -> None:
    """The convention is that of `subprocess`."""
    program = "import os; os.kill(os.getpid(), 15)"

    assert signal_forwarding.run([sys.executable, "-S", "-c", program], os.environ) == -signal.SIGTERM


@pytest.mark.timeout(60)
def test_another_thread_may_take_the_signal_of_the_childs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any thread that does not block SIGCHLD may, between a look at the child and the wait for a signal."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    taken, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    handler = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    descriptor = signal.set_wakeup_fd(wakeup.fileno())
    wait = signal.sigwaitinfo

    def wait_once_it_is_taken(numbers: set[int]) -> Any:
        taken.recv(1)
        return wait(numbers)

    monkeypatch.setattr(signal, "sigwaitinfo", wait_once_it_is_taken)
    try:
        assert signal_forwarding.run([sys.executable, "-S", "-c", "pass"], os.environ) == 0
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGCHLD, handler)
        stop.set()
        thread.join()
        taken.close()
        wakeup.close()


def test_the_child_has_exactly_the_given_environment(capfd: pytest.CaptureFixture[str]) -> None:
    signal_forwarding.run([sys.executable, "-S", "-c", "import os; print(os.environ.get('ONE'))"], {"ONE": "1"})

    assert capfd.readouterr().out == "1\n"


def test_a_missing_program_is_an_error() -> None:
    """The signal mask is restored."""
    with pytest.raises(FileNotFoundError):
        signal_forwarding.run(["/no/such/program"], os.environ)

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1], ids=str)
def test_signals_are_forwarded(number: signal.Signals, start_parent: Callable[..., subprocess.Popen[str]]) -> None:
    """The child handles the signal, and its exit code becomes that of the parent."""
    process = start_parent(f"signal.signal({int(number)}, lambda number, frame: sys.exit(40))")
    process.send_signal(number)
    process.communicate(timeout=60)

    assert process.returncode == 40


def test_the_parent_dies_of_the_same_signal(start_parent: Callable[..., subprocess.Popen[str]]) -> None:
    """A shell or a scheduler sees how the child ended."""
    process = start_parent("")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM


def test_the_parent_waits_for_a_child_that_ignores_a_signal(start_parent: Callable[..., subprocess.Popen[str]]) -> None:
    process = start_parent("signal.signal(15, signal.SIG_IGN)", "sys.stdin.read()")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == 0


def test_ignored_signals_stay_ignored_in_the_child(
    start_python: Callable[..., subprocess.Popen[str]],
) -> None:
    """Under `nohup`, SIGHUP does not end the child."""
    program = f"import signal; signal.signal(1, signal.SIG_IGN)\n{_PARENT.format(child='', wait='sys.stdin.read()')}"
    process = start_python("-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)

    assert process.returncode == 0
