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


@pytest.mark.parametrize(
    ("end", "code"),
    [("raise SystemExit(0)", 0), ("raise SystemExit(255)", 255), ("os.kill(os.getpid(), 15)", -signal.SIGTERM)],
)
def test_the_exit_code_is_returned(end: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    """The child has exactly the given environment. A signal is a negative code, as with `subprocess`."""
    program = f"import os; print(os.environ.get('ONE'), 'PATH' in os.environ, flush=True); {end}"

    assert signal_forwarding.run([sys.executable, "-S", "-c", program], {"ONE": "1"}) == code
    assert capfd.readouterr().out == "1 False\n"


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


def test_a_signal_that_comes_while_the_child_ends_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []
    wait = os.waitpid

    def wait_and_signal(child: int, options: int) -> tuple[int, int]:
        found = wait(child, options)
        if found[0]:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        return found

    monkeypatch.setattr(os, "waitpid", wait_and_signal)
    handler = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        assert signal_forwarding.run([sys.executable, "-S", "-c", "pass"], os.environ) == 0
    finally:
        signal.signal(signal.SIGTERM, handler)

    assert received == []


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


@pytest.mark.parametrize(
    ("child", "wait", "code"),
    [("", "signal.pause()", -signal.SIGTERM), ("signal.signal(15, signal.SIG_IGN)", "sys.stdin.read()", 0)],
    ids=["dies", "ignores it"],
)
def test_the_parent_ends_as_the_child(
    child: str, wait: str, code: int, start_parent: Callable[..., subprocess.Popen[str]]
) -> None:
    """A shell or a scheduler sees how the child ended, of the signal or later."""
    process = start_parent(child, wait)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == code


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
