"""Processes and environments in which these packages are tried."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from hpu_core import frameworks

# What the developer's shell may have set.
_VARIABLES = ("HPU_", "HABANA_", "PT_HPU_")

Run = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The environment without anything that concerns Gaudi, and this session's Lightning; put back afterwards."""
    name = frameworks.current().name
    with mock.patch.dict(os.environ, {"HPU_CORE_FRAMEWORK": name}):
        for variable in [other for other in os.environ if other.startswith(_VARIABLES)]:
            if variable != "HPU_CORE_FRAMEWORK":
                del os.environ[variable]
        yield


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program that has to succeed in a process of its own; returns the lines that it prints."""

    def run(program: str, **variables: str) -> list[str]:
        # An interpreter measured for coverage imports more than the program.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        environment.pop("HPU_CORE_FRAMEWORK")
        environment.update(HPU_SIM_RUNTIME_DIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path), **variables)
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)

        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata of the real lightning-habana on the path, as if it were installed."""
    folder = tmp_path / "lightning_habana-1.6.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning-habana\nVersion: 1.6.0\n")
    monkeypatch.syspath_prepend(tmp_path)
