"""End of launched ranks after an error of the process that launched them, and launchers that start no process."""

import sys
import time
from typing import Any

import pytest

from hpu_core.distributed import launcher
from hpu_core.distributed.launcher import FabricInProcessLauncher, InProcessLauncher, LaunchedRanks

from .jobs import launched_process


@pytest.fixture(autouse=True)
def _after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError("no such luck"), raising=False)
    monkeypatch.setattr(launcher, "_EXIT_TIMEOUT", 0.0)
    monkeypatch.setattr(launcher, "_POLL_INTERVAL", 0.0)


def test_a_rank_that_does_not_answer_is_killed() -> None:
    process = launched_process()
    process.kill.side_effect = lambda: setattr(process.poll, "return_value", -9)
    LaunchedRanks({1: process}).end_after_error()

    process.kill.assert_called_once_with()


def test_a_rank_that_answers_finishes_its_work() -> None:
    process = launched_process()
    process.poll.side_effect = [None] * 9 + [0]
    ranks = LaunchedRanks({1: process})
    ranks.deadlines[1] = time.monotonic() + 600
    ranks.end_after_error()

    process.kill.assert_not_called()


def test_without_an_error_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value")
    process = launched_process()
    LaunchedRanks({1: process}).end_after_error()

    process.kill.assert_not_called()


@pytest.mark.parametrize(
    ("kind", "options"), [(FabricInProcessLauncher, {}), (InProcessLauncher, {"trainer": "the Trainer"})]
)
def test_a_rank_of_another_launcher_runs_the_function(kind: type[Any], options: dict[str, Any]) -> None:
    """`run` publishes its error."""
    instance = kind()
    instance.run = lambda function, *args, **kwargs: ("run", function(*args, **kwargs))

    assert instance.launch(max, 1, 2, key=abs, **options) == ("run", 2)
