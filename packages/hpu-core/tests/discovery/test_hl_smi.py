"""Tests of asking hl-smi for memory in use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_core.discovery import used_modules


@pytest.fixture
def write_hl_smi(tmp_path: Path) -> Callable[[str], str]:
    """Write a shell program in place of hl-smi, and return its path."""

    def write(program: str) -> str:
        path = tmp_path / "hl-smi"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("printf '0, 768, 98304\\n1, 98304, 98304\\n3, 40000, 98304\\n'", {1, 3}),
        ("printf 'N/A, 768, 98304\\n1\\n'", set()),
        ("printf '1, 98304, 98304\\n'; exit 1", set()),
    ],
    ids=["in use", "another format", "failed"],
)
def test_used_modules(write_hl_smi: Callable[[str], str], program: str, expected: set[int]) -> None:
    assert used_modules(write_hl_smi(program)) == expected


def test_missing_command() -> None:
    assert used_modules("no-such-command") == frozenset()


def test_hanging_command(write_hl_smi: Callable[[str], str]) -> None:
    assert used_modules(write_hl_smi("exec sleep 600"), timeout=0.1) == frozenset()


def test_command_that_cannot_be_started(write_hl_smi: Callable[[str], str]) -> None:
    path = write_hl_smi("exit 0")
    Path(path).write_text("#!/no/such/shell\n")

    assert used_modules(path) == frozenset()
