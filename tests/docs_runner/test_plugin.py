"""Tests of `docs_runner.plugin` and `docs_runner.workspace`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from docs_runner import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("forks")


def _block(language: str, text: str, comment: str = "") -> str:
    return f"{comment}\n```{language}\n{text}\n```\n\n"


def _run(folder: Path, **documents: str) -> str:
    """Run pytest with the plugin on documents; return its output."""
    for name, text in documents.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    # The comments count in documents of the repository.
    lines = ("from docs_runner import blocks", f"blocks.ROOT = __import__('pathlib').Path({str(folder)!r})")
    plugin = "\n".join([*lines, "from docs_runner.plugin import pytest_collect_file", ""])
    (folder / "local_plugin.py").write_text(plugin, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "local_plugin", "-q", "-rA", *(f"{name}.md" for name in documents)]
    env = {"PYTHONPATH": f"{ROOT / 'tools'}:{folder}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


def test_document_runs_in_order(tmp_path: Path) -> None:
    """A command finds the file of the block before it; wrong output and a failing command are failures."""
    page = (
        _block("text", "said", "<!-- file: own.txt -->")
        + _block("bash", "cat own.txt")
        + _block("text", "said", "<!-- output -->")
        + _block("text", "unsaid", "<!-- output -->")
        + _block("bash", "cat own.txt | false")
        + _block("bash", "true", "<!-- not run: why -->")
    )
    output = _run(tmp_path, page=page)

    assert "2 failed, 3 passed, 1 skipped" in output
    assert "is not what was printed:\nsaid" in output
    assert "exit codes [1]" in output


def test_nothing_runs_after_a_block_error(tmp_path: Path) -> None:
    """All documents are read before the first block runs."""
    output = _run(tmp_path, a=_block("bash", f"touch {tmp_path}/ran"), b=_block("yaml", ""))

    assert "b.md:2: nothing runs a block of 'yaml'" in output
    assert not (tmp_path / "ran").exists()
