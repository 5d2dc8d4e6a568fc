"""Share of loading batches, and its lines in a report."""

from __future__ import annotations

from typing import Any

import pytest

from hpu_sim.device import media_time
from hpu_sim.report.loader_clock import LoaderClock
from hpu_sim.report.schema import LoaderShare
from hpu_sim.report.view import loader_lines

from .factories import make_record, make_report


class _Time:
    """Clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _iterator(time: _Time, seconds: float) -> Any:
    class Iterator:
        def __next__(self) -> str:
            time.now += seconds
            return "batch"

    return Iterator


def test_times_are_those_between_the_first_and_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch and the set-up before the first step do not count."""
    monkeypatch.setattr(media_time, "total", media_time.MediaTime())
    time = _Time()
    clock, iterator = LoaderClock(time), _iterator(time, 1.0)
    clock.observe(iterator)
    assert clock.share() is None
    for _ in range(3):
        assert next(iterator()) == "batch"
        media_time.total.add(0.5, 8)
        time.now += 3.0
        clock.on_step()

    assert clock.share() == LoaderShare(8.0, 2.0, 1.0, 16)
    clock.reset()
    clock.on_step()
    assert clock.share() is None


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, []),
        (LoaderShare(10.0, 0.5, 0.0, 0), []),
        (LoaderShare(10.0, 4.0, 0.0, 0), ["loading batches: 40% of the time between the first and the last step"]),
        (
            LoaderShare(10.0, 0.0, 2.0, 100),
            ["decoding on the card (simulated): 100 images, 20% of that time at 50 images"],
        ),
    ],
)
def test_lines_of_a_report(share: LoaderShare | None, expected: list[str]) -> None:
    """A small share is not worth a line."""
    lines = loader_lines(make_report(make_record(loader=share)))

    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))
