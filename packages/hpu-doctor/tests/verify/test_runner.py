"""Tests of the choice of assumptions and their processes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import types
from typing import TYPE_CHECKING, Any

import pytest
from one_assumption import TARGET, make_assumption

from hpu_doctor.verify import register, runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("forks")

REAL = dataclasses.replace(TARGET, simulated=False)


def skipped(tmp_path: Path, target: runner.Target = TARGET, **fields: Any) -> str:
    """Return why an assumption is not tried."""
    options: dict[str, Any] = {name: fields.pop(name) for name in ("all_cards", "points") if name in fields}
    options["seconds"] = fields.pop("seconds_of_run", None)
    (outcome,) = runner.run([make_assumption(**fields)], target, tmp_path, {}, **options)
    assert outcome.state == "not tried"
    return outcome.reason


def test_other_release(tmp_path: Path) -> None:
    assert skipped(tmp_path, releases="<1.20") == "claimed for SynapseAI <1.20, not for this machine"


def test_hardware_only(tmp_path: Path) -> None:
    reason = skipped(tmp_path, simulator="hardware", reason="it has no fan")

    assert reason == "no simulated card shows it: it has no fan"


def test_strict_mode_only(tmp_path: Path) -> None:
    assert "HPU_SIM_STRICT" in skipped(tmp_path, simulator="strict")


def test_collectives_need_all_cards(tmp_path: Path) -> None:
    assert "--all-cards" in skipped(tmp_path, ranks=True)


def test_collectives_need_two_cards(tmp_path: Path) -> None:
    assert skipped(tmp_path, REAL, ranks=True, all_cards=True) == "it needs two cards"


def test_points_of_a_simulated_card(tmp_path: Path) -> None:
    reason = skipped(tmp_path, simulator="hardware", reason="its times are the host's", is_point=True)

    assert "its times are the host's" in reason


def test_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It sees the defaults of a user's settings, and what it leaves is part of its outcome."""
    environ = {**os.environ, "HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "1", "HABANA_PROFILE": "1", "RANK": "3"}
    names = ("summary-is-a-table", "default-mode-is-eager", "import-sets-up-torch")

    outcomes = list(runner.run([register.find(name) for name in names], TARGET, tmp_path, environ))

    assert [outcome.state for outcome in outcomes] == ["holds"] * 3, outcomes
    assert outcomes[0].attachments.keys() == {"memory-summary.txt"}
    # Only folders for what libraries write are left.
    assert not (tmp_path / "summary-is-a-table").exists()


def test_time_of_the_run(tmp_path: Path) -> None:
    assert skipped(tmp_path, seconds_of_run=-1.0) == "the time of the run was up"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., runner._Processes]]:
    """Return a function that starts a shell's text as the process of a program, which is ended after the test."""
    with contextlib.ExitStack() as stack:

        def start(text: str, **fields: Any) -> runner._Processes:
            monkeypatch.setattr(runner, "_COMMAND", ("sh", "-c", text))
            target = dataclasses.replace(TARGET, cards=2)
            processes = runner._Processes(make_assumption(**fields), target, tmp_path / "program", {})
            return stack.enter_context(contextlib.closing(processes))

        yield start


@pytest.mark.parametrize(
    ("text", "fields", "ending"),
    [
        ("echo one; exit 3", {}, "the program ended with exit code 3: one"),
        ("kill -9 $$", {}, "the program was ended by SIGKILL"),
        ("sleep 600", {"seconds": 0.1}, "the program did not end within 0.1 seconds"),
        ("test $RANK = 1 || sleep 600; exit 4", {"ranks": True}, "the program ended with exit code 4"),
    ],
)
def test_ending(start: Callable[..., runner._Processes], text: str, fields: dict[str, Any], ending: str) -> None:
    """Other ranks end with the first failure."""
    outcome = start(text, **fields).finish()

    assert (outcome.state, outcome.seen) == ("differs", ending)


def test_processes_of_a_program_end_with_it(start: Callable[..., runner._Processes], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "open")
    processes = start(f"exec 3>{tmp_path}/open; sleep 600 & sleep 600")

    with (tmp_path / "open").open("rb") as file:
        processes.close()

        # Every copy of the writing end is closed when all of them have ended.
        assert file.read() == b""


@pytest.mark.parametrize(
    ("error", "free", "state"),
    [
        ("RuntimeError: it is red", 1 << 30, "differs"),
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", 1 << 30, "not tried"),
        ("OSError: [Errno 28] No space left on device", 1 << 30, "not tried"),
        ("JSONDecodeError: Expecting value", 4096, "not tried"),
    ],
)
def test_error_of_the_machine_is_no_difference(
    start: Callable[..., runner._Processes], monkeypatch: pytest.MonkeyPatch, error: str, free: int, state: str
) -> None:
    """Another process has the card, or the disk is full."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))

    outcome = start(f"echo '{json.dumps({'error': error})}' > result-0.json").finish()

    assert outcome.state == state
    assert error in str(outcome.seen or outcome.reason)
