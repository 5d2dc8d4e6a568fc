"""Fresh interpreters at the cost of a fork, for tests that each need a machine of another release, mode or generation.

Here, unlike in the rest of the suite, a program finds torch imported. Where it matters how torch is imported, tests
start interpreters of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SCRIPT: Final = Path(__file__).with_name("prepared_interpreter.py")


@pytest.fixture(scope="session")
def prepared_interpreter(fresh_environment: Callable[..., dict[str, str]]) -> Iterator[tuple[int, int]]:
    """The ends that the suite has of the two pipes to an interpreter that waits for programs."""
    theirs, requests = os.pipe()
    answers, ours = os.pipe()
    environment = fresh_environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    command = [sys.executable, str(_SCRIPT), str(theirs), str(ours)]
    with subprocess.Popen(command, env=environment, pass_fds=(theirs, ours), stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.close(ours)
        yield requests, answers
        os.close(requests)
        os.close(answers)
        process.wait(timeout=60)


@pytest.fixture(scope="session")
def run_python(
    prepared_interpreter: tuple[int, int],
    fresh_environment: Callable[..., dict[str, str]],
    warning_filters: list[tuple[str, str, str]],
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program given as text, with further variables, in an interpreter that warnings end."""
    requests, answers = prepared_interpreter

    def run(program: str, *arguments: str | Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
        folder = tmp_path_factory.mktemp("program")
        files = {name: folder / name for name in ("stdout", "stderr")}
        for file in files.values():
            file.touch()
        request = {
            "program": textwrap.dedent(program),
            "arguments": [str(argument) for argument in arguments],
            "environment": fresh_environment(variables),
            "filters": warning_filters,
            **{name: str(file) for name, file in files.items()},
        }
        os.write(requests, json.dumps(request).encode() + b"\n")
        code = int(os.read(answers, 16))
        output, errors = (file.read_text(encoding="utf-8") for file in files.values())
        return subprocess.CompletedProcess([], code, without_gloo(output), errors)

    return run


@pytest.fixture(scope="session")
def output_of(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs a program that has to end well and returns what it prints, without the last line's end."""

    def output(program: str, *arguments: str | Path, **variables: str | None) -> str:
        result = run_python(program, *arguments, **variables)

        assert result.returncode == 0, result.stderr
        return result.stdout.rstrip("\n")

    return output
