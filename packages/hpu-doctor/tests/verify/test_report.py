"""Tests of the report and its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from one_assumption import TARGET, make_assumption

from hpu_doctor.verify import report
from hpu_doctor.verify.assumption import contains
from hpu_doctor.verify.privacy import TextMask
from hpu_doctor.verify.runner import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpu_core.info import SystemInfo

SECRETS = ("enigma", "turing", "/home/turing", "AK39012345")


@pytest.fixture
def built(simulated_system: SystemInfo) -> Callable[..., report.Report]:
    """Return a function that builds a report on outcomes."""

    def build(*outcomes: Outcome) -> report.Report:
        mask = TextMask(["enigma", "turing"])
        return report.build(outcomes, simulated_system, TARGET, mask, date="2026-11-24", seconds=1.5)

    return build


def differing(seen: Any = "no <error> on enigma in /home/turing/x.py, AK39012345") -> Outcome:
    """Return an outcome that differs."""
    return Outcome(assumption=make_assumption(expected=contains("acquire")), state="differs", seen=seen)


def test_difference_has_both_values_and_its_meaning(built: Callable[..., report.Report]) -> None:
    (entry,) = built(differing())["entries"]

    assert entry["state"] == "differs"
    assert entry["expected"] == "text with 'acquire'"
    assert entry["seen"] == "no <error> on <name> in <path>, <serial>"
    assert entry["means"] == {"hpu-core": "counting would be wrong."}


def test_what_holds_means_nothing(built: Callable[..., report.Report]) -> None:
    (entry,) = built(Outcome(assumption=make_assumption(), state="holds", seen=1))["entries"]

    assert entry["means"] == {}


def test_json_is_the_report(built: Callable[..., report.Report], tmp_path: Path) -> None:
    made = built(differing(), Outcome(assumption=make_assumption(), state="not tried", reason="no card"))

    report.write(made, tmp_path)

    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == made
    assert made["counts"] == {"differs": 1, "not tried": 1, "holds": 0}


def test_no_file_names_the_machine(built: Callable[..., report.Report], tmp_path: Path) -> None:
    report.write(built(differing()), tmp_path)

    texts = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()}
    assert set(texts) == {"report.json", "report.txt"}
    assert not [(name, secret) for name, text in texts.items() for secret in SECRETS if secret in text]


def test_text_begins_with_what_differs(built: Callable[..., report.Report]) -> None:
    text = report.to_text(built(Outcome(assumption=make_assumption(), state="holds", seen=1), differing()))

    assert text.startswith("1 assumptions hold, 1 differ, 0 were not tried on a simulated GAUDI2")
    assert text.index("DIFFERS") < text.index("HOLDS")
