"""Fixtures: clean environment, programs in subprocesses, and a fake real package."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from hpu_core import frameworks

# Prefixes of variables that the developer's shell may have set.
_VARIABLES = ("HPU_", "HABANA_", "PT_HPU_")

Run = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Unset Gaudi's variables and select this session's Lightning; restore the environment afterwards."""
    name = frameworks.current().name
    with mock.patch.dict(os.environ, {"HPU_CORE_FRAMEWORK": name}):
        for variable in [other for other in os.environ if other.startswith(_VARIABLES)]:
            if variable != "HPU_CORE_FRAMEWORK":
                del os.environ[variable]
        yield


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a program in a subprocess and returns the lines of its output."""

    def run(program: str, **variables: str) -> list[str]:
        # Coverage in the subprocess would import more modules.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        environment.pop("HPU_CORE_FRAMEWORK")
        environment.update(HPU_SIM_RUNTIME_DIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path), **variables)
        command = [sys.executable, "-c", program]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)

        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return run


@pytest.fixture
def archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add metadata of the real lightning-habana to the path, as if it were installed."""
    dist_info = tmp_path / "lightning_habana-1.6.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: lightning-habana\nVersion: 1.6.0\n")
    monkeypatch.syspath_prepend(tmp_path)
