"""Tests of programs that start with torch imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hpu_testing import CompletedProgram, Program, machine_env
from hpu_testing.fork_server import PRELOAD, shared_server

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., CompletedProgram]

# Without the simulator.
_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "HPU_SIM_DEVICES"},
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}


_FAIL = """
import atexit, sys, threading

atexit.register(print, "exit handler")
threading.Timer(0.1, print, ["thread"]).start()
print("out")
print("err", file=sys.stderr)
raise SystemExit(3)
"""

# The child starts with torch imported, and a program that does not name torch is an interpreter of its own.
_NESTED = """
import os, subprocess, sys

if sys.argv[1:]:
    state = "torch" in sys.modules, os.getppid() == int(os.environ["PARENT"]), sys.argv[1:], os.environ["EXTRA"]
    print(*state, sys.stdin.read(), flush=True)
    os.kill(os.getpid(), 9)
variables = {**os.environ, "PARENT": str(os.getpid()), "EXTRA": "1"}
command = [sys.executable, __file__, "child"]
child = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
session = os.getsid(child.pid) == os.getsid(0)
print(child.communicate("given")[0].strip(), child.returncode, session)
print(subprocess.call([sys.executable, "-c", "import sys; sys.exit('tor' 'ch' in sys.modules)"]))
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the text of a program."""

    def run(text: str, *arguments: str, **more: str) -> CompletedProgram:
        script = tmp_path / "script.py"
        script.write_text(text, encoding="utf-8")
        environment = _ENVIRONMENT | more
        with Program([sys.executable, str(script), *arguments], environment, tmp_path, preloaded=True) as program:
            return program.wait(60)

    return run


def test_exit_code_and_output_are_those_of_the_program(run: Run) -> None:
    """Also what threads and exit handlers print."""
    done = run(_FAIL)

    assert (done.code, done.leaked_pids) == (3, ())
    *_, first, second, third, fourth = done.output.splitlines()
    assert sorted([first, second]) == ["err", "out"]
    assert [third, fourth] == ["thread", "exit handler"]


def test_a_script_that_the_program_starts_is_a_fork_and_its_child(run: Run) -> None:
    """With the files, the environment, the session and the exit code that `subprocess` gives it."""
    done = run(_NESTED)
    state, code = done.output.splitlines()[-2:]

    assert done.code == 0, done.output
    assert state == "True True ['child'] 1 given -9 True"
    assert code == "0"


def test_programs_share_a_machine_that_has_started(tmp_path: Path) -> None:
    """Each has variables and a device of its own, which the server lacks."""
    text = """
import os, sys, torch
print(os.environ["EXTRA"], torch.ones(2, device="hpu").sum().item(), sys.argv[1:], "wave" in sys.modules)
"""
    server = shared_server().with_machine({**machine_env(1, tmp_path), PRELOAD: "no_such_module,wave"})
    for extra in ("1", "2"):
        with (tmp_path / extra).open("w+") as output:
            assert server.start(["-c", text, "-v"], {"EXTRA": extra}, output).wait(60) == 0
            output.seek(0)
            assert output.read().splitlines()[-1] == f"{extra} 2.0 ['-v'] True"
