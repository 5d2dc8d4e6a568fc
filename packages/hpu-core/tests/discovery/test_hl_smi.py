"""hl-smi is run, or not there, or broken; in every case there is an answer."""

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
    """Makes a program of a few lines of Python and returns its path."""

    def make(body: str) -> str:
        path = tmp_path / "hl-smi"
        path.write_text(f"#!{sys.executable} -IS\nimport os, sys\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_run_returns_what_is_printed(script: Callable[[str], str]) -> None:
    """The arguments reach the program, and only its standard output comes back."""
    path = script("print(sys.argv[1:]); print('noise', file=sys.stderr)")

    assert _hl_smi.run(("-L", "-x"), path) == "['-L', '-x']\n"


def test_run_without_the_program(tmp_path: Path) -> None:
    """A program that is not there is said to be missing."""
    with pytest.raises(_hl_smi.HlSmiError, match=r"^it is not on PATH$"):
        _hl_smi.run(("-L",), str(tmp_path / "hl-smi"))


def test_run_of_a_failing_program(script: Callable[[str], str]) -> None:
    """A failure is reported with its exit code and the program's own words, fit to print."""
    path = script("sys.stderr.write('no \\x1b[31mdriver\\n'); sys.exit(3)")

    with pytest.raises(_hl_smi.HlSmiError, match=r"^it failed with exit code 3: no \?\[31mdriver$"):
        _hl_smi.run(("-L",), path)


def test_run_of_a_failing_program_without_words(script: Callable[[str], str]) -> None:
    """A failure in silence is reported too."""
    with pytest.raises(_hl_smi.HlSmiError, match=r"^it failed with exit code 1: no output$"):
        _hl_smi.run(("-L",), script("sys.exit(1)"))


def test_run_of_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    """A file that is executable and no program is reported."""
    path = tmp_path / "hl-smi"
    path.write_bytes(b"\x7fELF, but not really")
    path.chmod(0o755)

    with pytest.raises(_hl_smi.HlSmiError, match=r"^it cannot be started: "):
        _hl_smi.run(("-L",), str(path))


@pytest.fixture
def forever(tmp_path: Path) -> Iterator[str]:
    """A pipe that gives a reader nothing as long as the test runs, and its end afterwards."""
    path = tmp_path / "forever"
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    yield str(path)
    os.close(held)


def test_run_of_a_hanging_program(script: Callable[[str], str], forever: str) -> None:
    """A program that does not end is given up, although a child of it that lives on holds its output open."""
    path = script(f"pipe = os.open({forever!r}, os.O_RDONLY); os.fork(); os.read(pipe, 1)")

    with pytest.raises(_hl_smi.HlSmiError, match=r"^it did not answer within 0\.5 seconds$"):
        _hl_smi.run(("-L",), path, timeout=0.5)


def test_run_keeps_output_that_is_no_text(script: Callable[[str], str]) -> None:
    """Bytes that are no text do not raise."""
    assert _hl_smi.run((), script("os.write(1, b'a\\xff')")) == "a\ufffd"


def test_find_by_the_log(hl_smi_text: Text) -> None:
    """The log alone is asked for when it is understood."""
    asked = []

    def runner(arguments: tuple[str, ...]) -> str:
        asked.append(arguments)
        return hl_smi_text("hl-smi-L-gaudi2.txt")

    finding = _hl_smi.find(runner)

    assert asked == [("-L",)]
    assert (len(finding.devices), finding.found) == (8, "it lists 8 cards")


def test_find_by_the_query(hl_smi_text: Text) -> None:
    """A log of another layout leaves the list to the query."""
    answers = {"-L": "a new layout", "-Q": hl_smi_text("hl-smi-Q-gaudi3.csv")}
    finding = _hl_smi.find(lambda arguments: answers[arguments[0]])

    assert [device.generation for device in finding.devices] == ["GAUDI3", "GAUDI3"]


def test_find_in_rubbish() -> None:
    """Rubbish lists no card and is called what it is."""
    finding = _hl_smi.find(lambda arguments: "rubbish")

    assert (finding.devices, finding.found) == ((), "what it prints is not understood")


def _failing(arguments: tuple[str, ...]) -> str:
    raise _hl_smi.HlSmiError("it is not on PATH")


def test_find_without_an_answer() -> None:
    """Without an answer there is no card, and the finding says why there is none."""
    finding = _hl_smi.find(_failing)

    assert (finding.devices, finding.found) == ((), "it is not on PATH")


def test_release() -> None:
    """The release is asked for with -v."""
    answers: dict[tuple[str, ...], str]
    answers = {("-v",): "Habanalabs hl-smi/hlml version hl-1.18.0-fw-53.1.1.1 (Oct 09 2024 - 20:09:06)"}

    assert _hl_smi.release(answers.__getitem__) == Version("1.18.0")


def test_release_without_an_answer() -> None:
    """Without an answer the release is unknown."""
    assert _hl_smi.release(_failing) is None
