"""Tests of running hl-smi."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from hpu_core.discovery import _hl_smi

Text = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a Python program and return its path."""

    def make(body: str) -> str:
        path = tmp_path / "hl-smi"
        path.write_text(f"#!{sys.executable} -IS\nimport os, sys\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_run_returns_stdout(script: Callable[[str], str]) -> None:
    path = script("print(sys.argv[1:]); print('noise', file=sys.stderr)")

    assert _hl_smi.run(("-L", "-x"), path) == "['-L', '-x']\n"


def test_run_without_program(tmp_path: Path) -> None:
    with pytest.raises(_hl_smi.HlSmiError, match=r"^not on PATH$"):
        _hl_smi.run(("-L",), str(tmp_path / "hl-smi"))


def test_run_of_failing_program(script: Callable[[str], str]) -> None:
    """The error has the exit code and the program's stderr in printable form."""
    path = script("sys.stderr.write('no \\x1b[31mdriver\\n'); sys.exit(3)")

    with pytest.raises(_hl_smi.HlSmiError, match=r"^failed with exit code 3: no \?\[31mdriver$"):
        _hl_smi.run(("-L",), path)


def test_run_of_failing_program_without_output(script: Callable[[str], str]) -> None:
    with pytest.raises(_hl_smi.HlSmiError, match=r"^failed with exit code 1: no output$"):
        _hl_smi.run(("-L",), script("sys.exit(1)"))


def test_run_of_invalid_executable(tmp_path: Path) -> None:
    path = tmp_path / "hl-smi"
    path.write_bytes(b"\x7fELF, but not really")
    path.chmod(0o755)

    with pytest.raises(_hl_smi.HlSmiError, match=r"^cannot be started: "):
        _hl_smi.run(("-L",), str(path))


@pytest.fixture
def blocking_pipe(tmp_path: Path) -> Iterator[str]:
    """Path of a pipe whose readers block until the test ends."""
    path = tmp_path / "blocking_pipe"
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    yield str(path)
    os.close(held)


def test_run_of_hanging_program(script: Callable[[str], str], blocking_pipe: str) -> None:
    """The timeout holds although a child process keeps the output open."""
    path = script(f"pipe = os.open({blocking_pipe!r}, os.O_RDONLY); os.fork(); os.read(pipe, 1)")

    with pytest.raises(_hl_smi.HlSmiError, match=r"^timed out after 0\.5 seconds$"):
        _hl_smi.run(("-L",), path, timeout=0.5)


def test_run_decodes_invalid_text(script: Callable[[str], str]) -> None:
    assert _hl_smi.run((), script("os.write(1, b'a\\xff')")) == "a\ufffd"


def test_find_uses_the_log(hl_smi_text: Text) -> None:
    calls = []

    def runner(arguments: tuple[str, ...]) -> str:
        calls.append(arguments)
        return hl_smi_text("hl-smi-L-gaudi2.txt")

    result = _hl_smi.find(runner)

    assert calls == [("-L",)]
    assert (len(result.devices), result.message) == (8, "lists 8 cards")


def test_find_with_unknown_format() -> None:
    result = _hl_smi.find(lambda arguments: "rubbish")

    assert (result.devices, result.message) == ((), "its output has an unknown format")


def _failing(arguments: tuple[str, ...]) -> str:
    raise _hl_smi.HlSmiError("not on PATH")


def test_find_without_hl_smi() -> None:
    result = _hl_smi.find(_failing)

    assert (result.devices, result.message) == ((), "not on PATH")


def test_release() -> None:
    answers: dict[tuple[str, ...], str]
    answers = {("-v",): "Habanalabs hl-smi/hlml version hl-1.18.0-fw-53.1.1.1 (Oct 09 2024 - 20:09:06)"}

    assert _hl_smi.release(answers.__getitem__) == Version("1.18.0")


def test_release_without_hl_smi() -> None:
    assert _hl_smi.release(_failing) is None


@pytest.mark.parametrize(
    ("output", "modules"),
    [("0, 768, 98304\n1, 97000, 98304\n", {1}), ("", set()), ("N/A, 1\n\n2, 9, N/A\n", set())],
)
def test_used_modules(output: str, modules: set[int]) -> None:
    assert _hl_smi.used_modules(lambda arguments: output) == modules


def test_no_module_is_used_without_hl_smi() -> None:
    assert _hl_smi.used_modules(_failing) == frozenset()


def test_result_is_cached() -> None:
    """hl-smi is slow, and hangs if the driver does: it runs once per process, also if it fails."""
    calls = []

    def runner(arguments: tuple[str, ...]) -> str:
        calls.append(arguments)
        raise _hl_smi.HlSmiError("timed out after 10 seconds")

    for _ in range(2):
        _hl_smi.find(runner)
        _hl_smi.release(runner)

    assert calls == [("-L",), ("-v",)]
