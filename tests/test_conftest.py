"""Tests of the root's conftest.py."""

from __future__ import annotations

import re
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

_POOL_FIXTURE = """

@pytest.fixture(scope="session")
def on_ranks():
    return map
"""

_POOL_TESTS = """
def test_on_ranks(on_ranks):
    assert True

def test_without_ranks():
    assert True
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


def test_pool_of_ranks_is_in_one_process(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"test_pool_{number}.py").write_text(_POOL_TESTS, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8") + _POOL_FIXTURE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist=loadfile", str(tmp_path)]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert "8 passed" in output
    assert len(set(re.findall(r"\[(gw\d)\]", output))) == 1


def test_files_that_start_processes_come_first(tmp_path: Path) -> None:
    """The pool of ranks is the longest part, and in one process."""
    for name, text in {"a": "", "b": "import subprocess", "c": "# on_ranks"}.items():
        (tmp_path / f"test_{name}.py").write_text(f"{text}\ndef test_{name}(): pass\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_bytes(CONFTEST.read_bytes())
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(tmp_path)]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert re.findall(r"::test_(\w)", output) == ["c", "b", "a"]
