"""Tests of tools/import_every_module.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "import_every_module.py"


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a package with one module."""
    package = folder / "parcel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text(source, encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "parcel", *arguments]
    return subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)


def test_valid_package_passes(tmp_path: Path) -> None:
    result = run(tmp_path, "x = 1")

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import torch_hpu", "the error for a missing extra must have the pip command"),
        ("1 / 0", "parcel.part: ZeroDivisionError: division by zero"),
        ("__all__ = ['Gone']", "parcel.part.Gone: AttributeError: module 'parcel.part' has no attribute 'Gone'"),
        ("import sys, types; sys.modules['pyhlml'] = types.ModuleType('pyhlml')", "loaded pyhlml"),
    ],
)
def test_broken_module_fails(tmp_path: Path, source: str, error: str) -> None:
    """A module fails that does not import, lacks a name that it exports, or loads a vendor module."""
    result = run(tmp_path, source)

    assert (result.returncode, error in result.stdout) == (1, True), result.stdout + result.stderr


def test_missing_extra_passes_with_the_pip_command(tmp_path: Path) -> None:
    source = "raise ModuleNotFoundError('needs an extra: pip install parcel[extra]')"

    result = run(tmp_path, source)

    assert result.returncode == 0, result.stdout + result.stderr


def test_missing_peer_passes_if_all_extras_are_installed(tmp_path: Path) -> None:
    """Packages do not require each other, so no extra installs a peer."""
    source = "raise ModuleNotFoundError('needs a peer: pip install hpu-peer', name='hpu_peer')"

    result = run(tmp_path, source, "--complete")

    assert result.returncode == 0, result.stdout + result.stderr


def test_missing_extra_fails_if_all_are_installed(tmp_path: Path) -> None:
    source = "raise ModuleNotFoundError('needs an extra: pip install parcel[extra]')"

    result = run(tmp_path, source, "--complete")

    assert result.returncode == 1, result.stdout + result.stderr
