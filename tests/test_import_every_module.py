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


_EXTRA = "raise ModuleNotFoundError('needs an extra: pip install parcel[extra]')"


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("x = 1", (), ""),
        ("import torch_hpu", (), "the error for a missing extra must have the pip command"),
        ("1 / 0", (), "parcel.part: ZeroDivisionError: division by zero"),
        ("__all__ = ['Gone']", (), "parcel.part.Gone: AttributeError: module 'parcel.part' has no attribute 'Gone'"),
        ("import sys, types; sys.modules['pyhlml'] = types.ModuleType('pyhlml')", (), "loaded pyhlml"),
        (_EXTRA, (), ""),
        (_EXTRA, ("--complete",), "needs an extra"),
        # Packages do not require each other, so no extra installs a peer.
        ("raise ModuleNotFoundError('pip install hpu-peer', name='hpu_peer')", ("--complete",), ""),
    ],
)
def test_module(source: str, options: tuple[str, ...], error: str, tmp_path: Path) -> None:
    """A module fails that does not import, lacks a name that it exports, or loads a vendor module."""
    result = run(tmp_path, source, *options)

    assert result.returncode == bool(error), result.stdout + result.stderr
    assert error in result.stdout
