"""Fixtures that run programs in forks of one interpreter, for tests of other releases, modes and generations.

Unlike in the rest of the suite, torch is imported before the program starts. Tests of that import start interpreters of
their own.
"""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import hpu_testing
from hpu_testing.fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds after which a program is killed.
_TIME_LIMIT: Final = 120.0


@pytest.fixture(scope="session")
def run_python(
    fresh_environment: Callable[..., dict[str, str]],
    warning_filters: list[tuple[str, str, str]],
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program with environment variables, and with warnings as errors."""
    # Not this process's path, which has folders of the release of its own machine.
    environment = {**fresh_environment({}), "PYTHONPATH": str(Path(hpu_testing.__file__).parents[1])}
    # Tests look at what else is imported.
    server = ForkServer(environment, preloaded=["torch"])

    def run(program: str, *arguments: str | Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
        folder = tmp_path_factory.mktemp("program")
        command = ["-c", textwrap.dedent(program), *map(str, arguments)]
        with (folder / "stdout").open("w+") as output, (folder / "stderr").open("w+") as errors:
            environment = fresh_environment(variables)
            process = server.start(command, environment, output, errors=errors, filters=warning_filters)
            code = process.wait(_TIME_LIMIT)
        texts = [(folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess([], code, without_gloo(texts[0]), texts[1])

    return run


@pytest.fixture(scope="session")
def output_of(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Return a function that runs a program, which must succeed, and returns its output without the final newline."""

    def output(program: str, *arguments: str | Path, **variables: str | None) -> str:
        result = run_python(program, *arguments, **variables)

        assert result.returncode == 0, result.stderr
        return result.stdout.rstrip("\n")

    return output
