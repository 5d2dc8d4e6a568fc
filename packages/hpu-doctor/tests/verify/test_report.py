"""Tests of the report and its files."""

from __future__ import annotations

import getpass
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from one_assumption import TARGET, make_assumption

from hpu_doctor.verify import report
from hpu_doctor.verify.assumption import contains
from hpu_doctor.verify.runner import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpu_core.info import SystemInfo


@pytest.fixture
def built(simulated_system: SystemInfo) -> Callable[..., dict[str, Any]]:
    """Return a function that builds a report on outcomes."""

    def build(*outcomes: Outcome) -> dict[str, Any]:
        return report.build(outcomes, simulated_system, TARGET, date="2026-11-24", seconds=1.5)

    return build


def differing(seen: Any = "no <error>") -> Outcome:
    """Return an outcome that differs."""
    return Outcome(assumption=make_assumption(expected=contains("acquire")), state="differs", seen=seen)


def test_difference_has_both_values_and_its_meaning(built: Callable[..., dict[str, Any]]) -> None:
    (entry,) = built(differing())["entries"]

    assert entry["state"] == "differs"
    assert entry["expected"] == "text with 'acquire'"
    assert entry["seen"] == "no <error>"
    assert entry["means"] == {"hpu-core": "counting would be wrong."}


def test_json_is_the_report(built: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    made = built(differing(), Outcome(assumption=make_assumption(), state="not tried", reason="no card"))

    report.write(made, tmp_path)

    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == made
    assert made["counts"] == {"differs": 1, "not tried": 1, "holds": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error in /home/ada/secret-project/train.py, line 3", "error in <path>, line 3"),
        ("~/data/file and ./here/file", "<path> and <path>"),
        ("rank 1/2 and/or 3", "rank 1/2 and/or 3"),
        ("turing on Enigma-04, enigma-04.bletchley.example", "<name> on <name>, <name>"),
        ("adventuring", "adventuring"),
    ],
)
def test_paths_host_and_user_are_removed(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "enigma-04.bletchley.example")
    monkeypatch.setenv("LOGNAME", "turing")

    assert report.remove_names(text) == expected


@pytest.mark.parametrize(("host", "user"), [("localhost", "root"), ("root", "")])
def test_names_of_every_machine_stay(host: str, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user that it does not list."""

    def find_user() -> str:
        if not user:
            raise KeyError("uid 1000")
        return user

    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(getpass, "getuser", find_user)

    assert report.remove_names("root on localhost") == "root on localhost"


def test_text_begins_with_what_differs(built: Callable[..., dict[str, Any]]) -> None:
    text = report.to_text(built(Outcome(assumption=make_assumption(), state="holds", seen=1), differing()))

    assert text.startswith("1 assumptions hold, 1 differ, 0 were not tried on a simulated GAUDI2")
    assert text.index("DIFFERS") < text.index("HOLDS")
