"""Tests of the choice of assumptions and their processes."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import types
from typing import TYPE_CHECKING, Any

import pytest
from one_assumption import TARGET, make_assumption

from hpu_doctor.verify import program, register, runner
from hpu_doctor.verify.assumption import points

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpu_doctor.verify.runner import Outcome

REAL = dataclasses.replace(TARGET, simulated=False)


@pytest.fixture
def try_program(tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that runs a registered assumption on a simulated card, in a process of its own."""

    def run(name: str, **options: Any) -> Outcome:
        assumption = register.find(name)
        environ = {**os.environ, "HPU_SIM_DEVICES": "1"}
        (outcome,) = runner.run([assumption], TARGET, tmp_path, environ, **options)
        return outcome

    return run


def skipped(tmp_path: Path, target: runner.Target = TARGET, **fields: object) -> str:
    """Return why an assumption is not tried."""
    options = {name: fields.pop(name) for name in ("all_cards", "points") if name in fields}
    (outcome,) = runner.run([make_assumption(**fields)], target, tmp_path, {}, **options)  # type: ignore[arg-type]
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
    reason = skipped(
        tmp_path, simulator="hardware", reason="its times are the host's", is_point=True, expected=points("launch")
    )

    assert "its times are the host's" in reason


def test_program_in_a_process_of_its_own(try_program: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = try_program("memory-stats-keys")

    assert outcome.state == "holds", outcome
    # Only folders for what libraries write are left.
    assert not (tmp_path / "memory-stats-keys").exists()


def test_time_of_the_run(try_program: Callable[..., Outcome]) -> None:
    outcome = try_program("memory-stats-keys", seconds=-1.0)

    assert (outcome.state, outcome.reason) == ("not tried", "the time of the run was up")


def test_settings_of_the_user_are_dropped(tmp_path: Path) -> None:
    environ = {**os.environ, "HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "1", "HABANA_PROFILE": "1", "RANK": "3"}
    names = ("default-mode-is-eager", "import-sets-up-torch")

    outcomes = list(runner.run([register.find(name) for name in names], TARGET, tmp_path, environ, fork=True))

    assert [outcome.state for outcome in outcomes] == ["holds", "holds"], outcomes


def test_attachments(try_program: Callable[..., Outcome]) -> None:
    outcome = try_program("summary-is-a-table", fork=True)

    assert outcome.state == "holds", outcome
    assert outcome.attachments.keys() == {"memory-summary.txt"}


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, free: int, state: str
) -> None:
    """Another process has the card, or the disk is full."""
    monkeypatch.setattr(program, "result_file", lambda *_: tmp_path / "result.json")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))
    (tmp_path / "result.json").write_text(json.dumps({"error": error}), encoding="utf-8")
    monkeypatch.setattr(runner._Processes, "_ask_server", lambda *_: None)
    processes = runner._Processes(make_assumption(), tmp_path, {}, [{}], {})

    outcome = processes.finish()

    assert outcome.state == state
    assert error in str(outcome.seen or outcome.reason)
