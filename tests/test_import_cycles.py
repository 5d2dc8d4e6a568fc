"""Tests of scripts/import_cycles.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "import_cycles.py"


@pytest.mark.parametrize(
    ("source", "is_cycle"),
    [
        ("import parcel.b", True),
        ("def use():\n    from parcel import b", True),
        ("import importlib\nimportlib.import_module('parcel.b')", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import parcel.b", False),
        ("import sys", False),
    ],
    ids=["module level", "in a function", "by name", "for type checkers", "none"],
)
def test_cycle_is_printed(source: str, is_cycle: bool, tmp_path: Path) -> None:
    package = tmp_path / "parcel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(source, encoding="utf-8")
    (package / "b.py").write_text("import parcel.a\n", encoding="utf-8")

    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == is_cycle, result.stdout + result.stderr
    assert ("2 modules import each other: parcel.a, parcel.b" in result.stdout) is is_cycle
