"""Tests of tools/gates.py."""

from __future__ import annotations

import itertools

import pytest

import gates


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([1.0] * 8, "met"),
        ([1.05] * 8, "met"),
        ([1.06] * 8, "missed"),
        ([1.0] * 7, "not judged"),
        ([0.9, 1.2] * 20, "not judged"),
        ([0.5, 1.0] * 20, "met"),
        ([1.1, 2.0] * 20, "missed"),
    ],
)
def test_a_gate_is_judged_by_its_median_and_interval(samples: list[float], verdict: str) -> None:
    """A wide interval is enough where it is on one side of the limit."""
    assert gates.Gate("step", 1.05, tuple(samples)).verdict == verdict


@pytest.mark.parametrize(("samples", "code"), [([1.0] * 8, 0), ([1.1] * 8, 1), ([0.9, 1.2] * 20, 1)])
def test_the_exit_code_and_the_row(samples: list[float], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that cannot be judged is not met."""
    assert gates.report([gates.Gate("a step", 1.05, tuple(samples))]) == code
    assert "a step" in capsys.readouterr().out


def test_steps_are_measured_in_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(itertools.count())
    calls: list[str] = []
    monkeypatch.setattr("gates.time.perf_counter", lambda: next(clock) + 2 * calls.count("step"))

    gate = gates.measure_steps("step", 4, lambda: calls.append("step"), lambda: calls.append("reference"), most=8)

    assert calls == ["reference", "step"] * 28
    assert gate.samples == (3.0,) * 8
