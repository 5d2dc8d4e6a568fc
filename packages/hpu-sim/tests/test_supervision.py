"""A program as a child, with its signals and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim import supervision

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

# The supervisor, told by a line on its stdout when its child is ready.
_SUPERVISE: Final = """
import os, sys
from hpu_sim import supervision

child = '''
import signal, sys
{child}
print("ready", flush=True)
{wait}
'''
supervision.end_like(supervision.run([sys.executable, "-c", child], os.environ))
"""


@pytest.fixture
def supervise(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Starts a supervisor of a program that waits, by default for a signal, and waits until that is ready."""
    if signal.SIG_IGN in {signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)}:
        pytest.skip("under nohup or in the background, the suite and all that it starts ignore some signals")

    def start(child: str, wait: str = "signal.pause()") -> subprocess.Popen[str]:
        process = start_python("-c", _SUPERVISE.format(child=child, wait=wait))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    return start


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_code_is_passed_on(code: int) -> None:
    """Whatever it is."""
    assert supervision.run([sys.executable, "-S", "-c", f"raise SystemExit({code})"], os.environ) == code


def test_a_signal_that_ended_the_program_is_negative() -> None:
    """As in `subprocess`."""
    program = "import os; os.kill(os.getpid(), 15)"

    assert supervision.run([sys.executable, "-S", "-c", program], os.environ) == -signal.SIGTERM


def test_the_program_has_the_variables_it_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    """And no others."""
    supervision.run([sys.executable, "-S", "-c", "import os; print(os.environ.get('ONE'))"], {"ONE": "1"})

    assert capfd.readouterr().out == "1\n"


def test_a_program_that_does_not_exist_is_an_error() -> None:
    """And the signals are as they were."""
    with pytest.raises(FileNotFoundError):
        supervision.run(["/no/such/program"], os.environ)

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1], ids=str)
def test_signals_reach_the_program(number: signal.Signals, supervise: Callable[..., subprocess.Popen[str]]) -> None:
    """It may do with them what it wants."""
    process = supervise(f"signal.signal({int(number)}, lambda number, frame: sys.exit(40))")
    process.send_signal(number)
    process.communicate(timeout=60)

    assert process.returncode == 40


def test_the_supervisor_ends_as_the_program_ended(supervise: Callable[..., subprocess.Popen[str]]) -> None:
    """By the same signal, so that a shell or a scheduler sees what it would have seen."""
    process = supervise("")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM


def test_a_program_that_goes_on_is_waited_for(supervise: Callable[..., subprocess.Popen[str]]) -> None:
    """The supervisor is never the first to go."""
    process = supervise("signal.signal(15, signal.SIG_IGN)", "sys.stdin.read()")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == 0


def test_signals_that_are_ignored_outside_are_ignored_inside(
    start_python: Callable[..., subprocess.Popen[str]],
) -> None:
    """As under `nohup`."""
    program = f"import signal; signal.signal(1, signal.SIG_IGN)\n{_SUPERVISE.format(child='', wait='sys.stdin.read()')}"
    process = start_python("-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)

    assert process.returncode == 0
