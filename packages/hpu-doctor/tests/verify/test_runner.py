"""Tests of the choice of assumptions and their processes."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from one_assumption import TARGET, make_assumption

from hpu_doctor.verify import register, runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("forks")


def skipped(tmp_path: Path, target: runner.Target = TARGET, **fields: Any) -> str:
    """Return why an assumption is not tried."""
    all_devices = fields.pop("all_devices", False)
    (outcome,) = runner.run([make_assumption(**fields)], target, tmp_path, {}, all_devices=all_devices)
    assert outcome.state == "not tried"
    return outcome.reason


def test_other_release(tmp_path: Path) -> None:
    assert skipped(tmp_path, releases="<1.20") == "claimed for SynapseAI <1.20, not for this machine"


def test_collectives_need_all_cards(tmp_path: Path) -> None:
    assert "--all-cards" in skipped(tmp_path, ranks=True)


def test_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It sees the defaults of a user's settings."""
    environ = {**os.environ, "HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "1", "HABANA_PROFILE": "1", "RANK": "3"}
    names = ("default-mode-is-eager", "import-sets-up-torch")

    outcomes = list(runner.run([register.find(name) for name in names], TARGET, tmp_path, environ))

    assert [outcome.state for outcome in outcomes] == ["holds"] * 2, outcomes
    # Only folders for what libraries write are left.
    assert not (tmp_path / "default-mode-is-eager").exists()


@pytest.fixture
def outcome_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., runner.Outcome]:
    """Return a function that tries an assumption whose program is a shell's text."""

    def try_text(text: str, **fields: Any) -> runner.Outcome:
        monkeypatch.setattr(runner, "_COMMAND", ("sh", "-c", text))
        target = dataclasses.replace(TARGET, cards=2)
        (outcome,) = runner.run([make_assumption(**fields)], target, tmp_path, {}, all_devices=True)
        return outcome

    return try_text


@pytest.mark.parametrize(
    ("text", "fields", "ending"),
    [
        ("echo one; exit 3", {}, "the program ended with exit code 3: one"),
        ("kill -9 $$", {}, "the program was ended by SIGKILL"),
        ("sleep 600", {"seconds": 0.1}, "the program did not end within 0.1 seconds"),
        ("test $RANK = 1 || sleep 600; exit 4", {"ranks": True}, "the program ended with exit code 4"),
    ],
)
def test_ending(outcome_of: Callable[..., runner.Outcome], text: str, fields: dict[str, Any], ending: str) -> None:
    """Other ranks end with the first failure."""
    outcome = outcome_of(text, **fields)

    assert (outcome.state, outcome.seen) == ("differs", ending)


def test_processes_of_a_program_end_with_it(outcome_of: Callable[..., runner.Outcome], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "open")
    reading = os.open(tmp_path / "open", os.O_RDONLY | os.O_NONBLOCK)

    outcome_of(f"exec 3>{tmp_path}/open; sleep 600 & exit 1")

    # Every copy of the writing end is closed when all of them have ended.
    with os.fdopen(reading, "rb") as file:
        os.set_blocking(reading, True)
        assert file.read() == b""


@pytest.mark.parametrize(
    ("error", "state"),
    [
        ("RuntimeError: it is red", "differs"),
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", "not tried"),
    ],
)
def test_busy_card_is_no_difference(outcome_of: Callable[..., runner.Outcome], error: str, state: str) -> None:
    outcome = outcome_of(f"echo '{json.dumps({'error': error})}' > result-0.json")

    assert outcome.state == state
    assert error in str(outcome.seen or outcome.reason)


def test_collectives_need_two_cards(tmp_path: Path) -> None:
    assert skipped(tmp_path, TARGET, ranks=True, all_devices=True) == "it needs two cards"
