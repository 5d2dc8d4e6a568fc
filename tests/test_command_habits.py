"""Tests of what all commands have in common."""

import sys
from importlib import metadata

import pytest

COMMANDS = {
    point.name: point
    for point in metadata.entry_points(group="console_scripts")
    if point.value.startswith("hpu_") and point.name.startswith("hpu-")
}


def _run(name: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Run a command in this process; return its exit code and what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as ended:
            sys.exit(COMMANDS[name].load()())
    printed = capsys.readouterr()
    return ended.value.code, printed.out + printed.err


def test_commands_are_found() -> None:
    assert {"hpu-info", "hpu-doctor", "hpu-launch", "hpu-export", "hpu-profiler", "hpu-bucketing", "hpu-sim"} <= set(
        COMMANDS
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_version_has_one_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    distribution = {"hpu-info": "hpu-core"}.get(name, name)

    assert _run(name, "--version", capsys=capsys) == (0, f"{name}, version {metadata.version(distribution)}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_argument_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It could not run; 1 would say that it has found something."""
    code, text = _run(name, "--no-such-option", capsys=capsys)

    assert (code, "rror" in text) == (2, True)
