"""Tests of the command `hpu-info`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hpu_core import info
from hpu_core.info import SystemInfo

MakeSystem = Callable[..., SystemInfo]


class _Result(NamedTuple):
    """Exit code and outputs of the command."""

    code: int
    stdout: str
    stderr: str


On = Callable[..., _Result]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> On:
    """Run hpu-info on a machine: `on(make_system, "--version")`."""

    def run(collect: Callable[[], SystemInfo], *arguments: str) -> _Result:
        monkeypatch.setattr(info, "collect", collect)
        monkeypatch.setattr(sys, "argv", ["hpu-info", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            info.main()
        assert isinstance(exit_info.value.code, int)
        return _Result(exit_info.value.code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(("usable", "code"), [(8, 0), (0, 1), (None, 1)])
def test_exit_code(on: On, make_system: MakeSystem, usable: int | None, code: int) -> None:
    assert on(lambda: make_system(usable=usable)).code == code


@pytest.mark.parametrize("option", ["--jsn", "--device=1", "extra"])
def test_unknown_option_is_a_usage_error(on: On, make_system: MakeSystem, option: str) -> None:
    result = on(make_system, option)

    assert result.code == 2
    assert f"unrecognized arguments: {option}\n" in result.stderr


def test_internal_error_has_no_traceback(on: On) -> None:
    def fail() -> SystemInfo:
        raise KeyError("cards")

    result = on(fail)

    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("hpu-info: internal error: KeyError: 'cards'.")


def test_output_of_libraries_goes_to_stderr(on: On, make_system: MakeSystem) -> None:
    def noisy() -> SystemInfo:
        print("HABANA PT BRIDGE CONFIGURATION")  # noqa: T201 - as a library does.
        return make_system()

    result = on(noisy)

    assert result.stdout.startswith("Gaudi cards: 8 found")
    assert result.stderr == "HABANA PT BRIDGE CONFIGURATION\n"


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run hpu-info on this machine, in a process without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "hpu_core.info", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_library_for_terminals_is_needed() -> None:
    """hpu-core requires torch and packaging alone."""
    program = "import sys; sys.modules.update(click=None, rich=None); import hpu_core.info; hpu_core.info.main()"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def broken_torch(tmp_path: Path) -> Path:
    """Folder for the path with a torch that cannot be imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('Failed to load the backend extension: broken')\n")
    return tmp_path


def test_broken_torch(broken_torch: Path) -> None:
    done = _run(PYTHONPATH=os.pathsep.join([str(broken_torch), *sys.path]))

    assert done.returncode == 1
    assert "cannot be imported: RuntimeError: Failed to load the backend extension: broken" in " ".join(
        done.stdout.split()
    )
    assert "Traceback" not in done.stderr
