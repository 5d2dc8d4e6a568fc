"""Fixtures that run programs in forks of one interpreter, for tests of other releases, modes and generations.

Unlike in the rest of the suite, torch is imported before the program starts. Tests of that import start interpreters of
their own.
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

_SCRIPT: Final = Path(__file__).with_name("fork_server.py")


@pytest.fixture(scope="session")
def fork_server(fresh_environment: Callable[..., dict[str, str]]) -> Iterator[tuple[int, int]]:
    """Start the fork server, and yield the ends of its pipes: requests to write, responses to read."""
    server_requests, requests = os.pipe()
    responses, server_responses = os.pipe()
    environment = fresh_environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    descriptors = (server_requests, server_responses)
    command = [sys.executable, str(_SCRIPT), *map(str, descriptors)]
    with subprocess.Popen(command, env=environment, pass_fds=descriptors, stdin=subprocess.DEVNULL) as process:
        for descriptor in descriptors:
            os.close(descriptor)
        yield requests, responses
        os.close(requests)
        os.close(responses)
        process.wait(timeout=60)


@pytest.fixture(scope="session")
def run_python(
    fork_server: tuple[int, int],
    fresh_environment: Callable[..., dict[str, str]],
    warning_filters: list[tuple[str, str, str]],
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program with environment variables, and with warnings as errors."""
    requests, responses = fork_server

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
        code = int(os.read(responses, 16))
        output, errors = (file.read_text(encoding="utf-8") for file in files.values())
        return subprocess.CompletedProcess([], code, without_gloo(output), errors)

    return run


@pytest.fixture(scope="session")
def output_of(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Return a function that runs a program, which must succeed, and returns its output without the final newline."""

    def output(program: str, *arguments: str | Path, **variables: str | None) -> str:
        result = run_python(program, *arguments, **variables)

        assert result.returncode == 0, result.stderr
        return result.stdout.rstrip("\n")

    return output
