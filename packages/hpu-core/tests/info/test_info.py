"""`hpu-info` answers on every machine with a report, an exit code and no traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from packaging.version import Version

from hpu_core import info
from hpu_core.__about__ import __version__
from hpu_core.info import main
from hpu_core.info._collect import Facts

MakeFacts = Callable[..., Facts]
On = Callable[..., Result]

# Before 8.2, click's runner gives both streams as one unless it is told otherwise.
_SEPARATE: dict[str, Any] = {"mix_stderr": False} if Version(metadata.version("click")) < Version("8.2") else {}
_RUNNER = CliRunner(**_SEPARATE)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """Runs hpu-info on a machine."""

    def run(facts: Facts, *arguments: str) -> Result:
        monkeypatch.setattr(info, "collect", lambda: facts)
        return _RUNNER.invoke(main, arguments)

    return run


def test_training_can_start(on: On, facts: MakeFacts) -> None:
    """Where training can start, the exit code is 0."""
    result = on(facts())

    assert result.exit_code == 0
    assert result.stdout.endswith("Training can start on 8 cards.\n")


def test_training_cannot_start(on: On, bare_facts: Facts) -> None:
    """Where training cannot start, the exit code is 1."""
    result = on(bare_facts)

    assert result.exit_code == 1
    assert result.stdout.endswith("Training cannot start.\n")


@pytest.mark.parametrize("expected", [0, 1])
def test_json(on: On, facts: MakeFacts, bare_facts: Facts, expected: int) -> None:
    """`--json` prints one JSON object and exits alike."""
    result = on(bare_facts if expected else facts(), "--json")

    assert result.exit_code == expected
    assert json.loads(result.stdout)["can_train"] is not bool(expected)


@pytest.mark.parametrize("option", ["--jsn", "--device=1", "extra"])
def test_a_bad_option(on: On, facts: MakeFacts, option: str) -> None:
    """An option that does not exist is a usage error."""
    result = on(facts(), option)

    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_version(on: On, facts: MakeFacts) -> None:
    """`--version` tells the version of this package."""
    assert on(facts(), "--version").stdout == f"hpu-info, version {__version__}\n"


def test_a_fault_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of hpu-info itself is a line on stderr and not a traceback."""

    def fail() -> Facts:
        raise KeyError("cards")

    monkeypatch.setattr(info, "collect", fail)
    result = _RUNNER.invoke(main, ["--json"])

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("hpu-info: a fault of hpu-info itself: KeyError: 'cards'.")


def test_what_others_print_is_kept_out(monkeypatch: pytest.MonkeyPatch, facts: MakeFacts) -> None:
    """What the libraries asked print to stdout goes to stderr, so that the report stays JSON."""

    def noisy() -> Facts:
        # Flushed, because click's runner before 8.2.2 forgets to.
        print("HABANA PT BRIDGE CONFIGURATION", flush=True)  # noqa: T201 - as a library does.
        return facts()

    monkeypatch.setattr(info, "collect", noisy)
    result = _RUNNER.invoke(main, ["--json"])

    assert json.loads(result.stdout)["schema"] == 1
    assert result.stderr == "HABANA PT BRIDGE CONFIGURATION\n"


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run hpu-info on this machine, whatever it is, in a process of its own and without a terminal."""
    return subprocess.run(
        [sys.executable, "-c", "from hpu_core.info import main; main(prog_name='hpu-info')", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_on_this_machine() -> None:
    """The exit code and the report agree in a process of its own."""
    done = _run("--json")
    report = json.loads(done.stdout)

    assert done.returncode == (0 if report["can_train"] else 1)
    assert "Traceback" not in done.stderr


def test_without_unicode() -> None:
    """The screen can be shown where nothing but ASCII can."""
    done = _run(PYTHONIOENCODING="ascii", LC_ALL="C", TERM="dumb")

    assert done.stdout.splitlines()[-1].startswith("Training can")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr


@pytest.fixture
def broken_torch(tmp_path: Path) -> Path:
    """A folder to put first on the path, in which torch cannot be imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('Failed to load the backend extension: broken')\n")
    return tmp_path


def test_where_torch_is_broken(broken_torch: Path) -> None:
    """A torch that a back-end keeps from being imported is a problem with its reason, and no traceback."""
    done = _run("--json", PYTHONPATH=os.pathsep.join([str(broken_torch), *sys.path]))
    report = json.loads(done.stdout)

    assert done.returncode == 1
    assert report["torch"]["error"] == "RuntimeError: Failed to load the backend extension: broken"
    assert "Traceback" not in done.stderr
