"""The check that a wheel stands alone can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "import_every_module.py"


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a package whose one module holds the source."""
    package = folder / "parcel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text(source, encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "parcel", *arguments]
    return subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)


def test_sound_package_passes(tmp_path: Path) -> None:
    """A package whose modules all import passes."""
    result = run(tmp_path, "x = 1")

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import torch_hpu", "an absent extra must be answered by a sentence with the pip command"),
        ("1 / 0", "parcel.part: ZeroDivisionError: division by zero"),
        ("__all__ = ['Gone']", "parcel.part.Gone: AttributeError: module 'parcel.part' has no attribute 'Gone'"),
        ("import sys, types; sys.modules['pyhlml'] = types.ModuleType('pyhlml')", "loaded pyhlml"),
    ],
)
def test_unsound_package_fails(tmp_path: Path, source: str, fault: str) -> None:
    """A module that does not import, has not what it exports, or loads a module of the vendor's, is a fault."""
    result = run(tmp_path, source)

    assert (result.returncode, fault in result.stdout) == (1, True), result.stdout + result.stderr


def test_absent_extra_may_say_so(tmp_path: Path) -> None:
    """A module that needs an extra passes when it says which, unless everything is installed."""
    source = "raise ModuleNotFoundError('needs an extra: pip install parcel[extra]')"

    result = run(tmp_path, source)

    assert result.returncode == 0, result.stdout + result.stderr


def test_complete_installation_has_no_excuse(tmp_path: Path) -> None:
    """With all extras installed, the same sentence is a fault."""
    source = "raise ModuleNotFoundError('needs an extra: pip install parcel[extra]')"

    result = run(tmp_path, source, "--complete")

    assert result.returncode == 1, result.stdout + result.stderr
