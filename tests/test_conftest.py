"""Tests of the root's conftest.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SUPPORT = Path(__file__).parent / "support"

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


def _run(folder: Path, tests: str, *options: str) -> str:
    (folder / "conftest.py").write_bytes(CONFTEST.read_bytes())
    (folder / "test_it.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def test_quick_skips_tests_that_start_a_process(tmp_path: Path) -> None:
    assert "1 passed, 2 skipped" in _run(tmp_path, _TESTS, "--quick")


# The last one changes the folder of those after it.
_LEAVING = {
    "threading.Thread(target=threading.Event().wait, daemon=True, name='own').start()": "thread 'own'",
    "lists.append(subprocess.Popen(['sleep', '20']))": "child",
    "lists.append(socket.create_server(('127.0.0.1', 0)))": "port",
    "os.environ['OWN'] = '1'": "variable OWN: None is '1' now",
    "tempfile.mkstemp(prefix='own')": "file",
    "Path('own').touch()": "file",
    "os.chdir('/')": "working directory",
}


def test_what_a_test_leaves_is_an_error(tmp_path: Path) -> None:
    modules = "import os, socket, subprocess, tempfile, threading, hpu_testing.leftovers\nfrom pathlib import Path"
    quick = "hpu_testing.leftovers._SECONDS_TO_END = 0.1\nlists = []"
    tests = [f"def test_{index}():\n    {statement}" for index, statement in enumerate(_LEAVING)]

    output = _run(tmp_path, "\n".join([modules, quick, *tests, ""]))

    left = re.findall(r"^the test leaves (.*)$", output, re.MULTILINE)
    assert "7 passed, 7 errors" in output
    assert [line for line, start in zip(left, _LEAVING.values(), strict=True) if not line.startswith(start)] == []


_WAITS = """
import signal, subprocess, sys

def limit():
    return round(signal.getitimer(signal.ITIMER_REAL)[0])

def test_unit():
    assert limit() == 30

def test_program():
    subprocess.run([sys.executable, "--version"])
    assert limit() == 120

def test_unit_after_a_program():
    assert limit() == 30
"""


def test_limits_by_kind(tmp_path: Path) -> None:
    assert "3 passed" in _run(tmp_path, _WAITS, "-o", "timeout=30")
