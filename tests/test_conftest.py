"""Tests of the root's conftest.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"

_TESTS = """
import multiprocessing, subprocess, sys
import pytest

@pytest.fixture(scope="module")
def version():
    return subprocess.check_output([sys.executable, "--version"])

def test_in_this_process():
    assert True

def test_with_a_fixture(version):
    assert version

def test_with_a_process():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
"""


def _run(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_bytes(CONFTEST.read_bytes())
    (folder / "test_it.py").write_text(_TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *options, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_quick_skips_tests_that_start_a_process(tmp_path: Path) -> None:
    assert "1 passed, 2 skipped" in _run(tmp_path, "--quick")


def test_all_tests_run_by_default(tmp_path: Path) -> None:
    assert "3 passed" in _run(tmp_path)
