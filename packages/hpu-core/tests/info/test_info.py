"""Tests of the command `hpu-info`."""

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
from hpu_core.info._collect import SystemInfo

MakeSystem = Callable[..., SystemInfo]
On = Callable[..., Result]

# Before 8.2, click's runner merges both streams by default.
_SEPARATE: dict[str, Any] = {"mix_stderr": False} if Version(metadata.version("click")) < Version("8.2") else {}
_RUNNER = CliRunner(**_SEPARATE)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """Run hpu-info on a machine: `on(system, "--json")`."""

    def run(system: SystemInfo, *arguments: str) -> Result:
        monkeypatch.setattr(info, "collect", lambda: system)
        return _RUNNER.invoke(main, arguments)

    return run


def test_training_can_start(on: On, make_system: MakeSystem) -> None:
    result = on(make_system())

    assert result.exit_code == 0
    assert result.stdout.endswith("Training can start on 8 cards.\n")


def test_training_cannot_start(on: On, bare_system: SystemInfo) -> None:
    result = on(bare_system)

    assert result.exit_code == 1
    assert result.stdout.endswith("Training cannot start.\n")


@pytest.mark.parametrize("expected", [0, 1])
def test_json(on: On, make_system: MakeSystem, bare_system: SystemInfo, expected: int) -> None:
    """The exit code does not depend on `--json`."""
    result = on(bare_system if expected else make_system(), "--json")

    assert result.exit_code == expected
    assert json.loads(result.stdout)["can_train"] is not bool(expected)


@pytest.mark.parametrize("option", ["--jsn", "--device=1", "extra"])
def test_unknown_option_is_a_usage_error(on: On, make_system: MakeSystem, option: str) -> None:
    result = on(make_system(), option)

    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_version(on: On, make_system: MakeSystem) -> None:
    assert on(make_system(), "--version").stdout == f"hpu-info, version {__version__}\n"


def test_internal_error_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> SystemInfo:
        raise KeyError("cards")

    monkeypatch.setattr(info, "collect", fail)
    result = _RUNNER.invoke(main, ["--json"])

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("hpu-info: internal error: KeyError: 'cards'.")


def test_output_of_libraries_goes_to_stderr(monkeypatch: pytest.MonkeyPatch, make_system: MakeSystem) -> None:
    def noisy() -> SystemInfo:
        # Flushed, because click's runner before 8.2.2 forgets to.
        print("HABANA PT BRIDGE CONFIGURATION", flush=True)  # noqa: T201 - as a library does.
        return make_system()

    monkeypatch.setattr(info, "collect", noisy)
    result = _RUNNER.invoke(main, ["--json"])

    assert json.loads(result.stdout)["schema"] == 1
    assert result.stderr == "HABANA PT BRIDGE CONFIGURATION\n"


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run hpu-info on this machine, in a process without a terminal."""
    return subprocess.run(
        [sys.executable, "-c", "from hpu_core.info import main; main(prog_name='hpu-info')", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_exit_code_on_this_machine() -> None:
    done = _run("--json")
    report = json.loads(done.stdout)

    assert done.returncode == (0 if report["can_train"] else 1)
    assert "Traceback" not in done.stderr


def test_ascii_terminal() -> None:
    done = _run(PYTHONIOENCODING="ascii", LC_ALL="C", TERM="dumb")

    assert done.stdout.splitlines()[-1].startswith("Training can")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr


@pytest.fixture
def broken_torch(tmp_path: Path) -> Path:
    """Folder for the path with a torch that cannot be imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('Failed to load the backend extension: broken')\n")
    return tmp_path


def test_broken_torch(broken_torch: Path) -> None:
    done = _run("--json", PYTHONPATH=os.pathsep.join([str(broken_torch), *sys.path]))
    report = json.loads(done.stdout)

    assert done.returncode == 1
    assert report["torch"]["error"] == "RuntimeError: Failed to load the backend extension: broken"
    assert "Traceback" not in done.stderr


def test_what_libraries_print_is_not_in_the_report_on_collectives(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As gloo, which stands in for HCCL on simulated cards, in torch 2.9."""

    def run_rank(*_: Any, **__: Any) -> dict[str, Any]:
        os.write(1, b"Rank 0 is connected to 1 peer ranks\n")
        return {"ok": True}

    monkeypatch.setattr(info, "find_job", object)
    monkeypatch.setattr(info._check_collectives, "run_rank", run_rank)
    monkeypatch.setattr(os, "_exit", sys.exit)
    result = _RUNNER.invoke(main, ["check-collectives", "--json"])

    assert json.loads(result.stdout) == {"ok": True}
    assert capfd.readouterr() == ("", "Rank 0 is connected to 1 peer ranks\n")
