"""End of launched ranks after an error of the process that launched them, and launchers that start no process."""

import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from hpu_core.distributed.launcher import FabricInProcessLauncher, InProcessLauncher, LaunchedRanks

from .jobs import launched_process


@pytest.fixture(autouse=True)
def _after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError("no such luck"), raising=False)


def test_ranks_may_finish_what_they_do() -> None:
    process = launched_process()
    LaunchedRanks({1: process}).end_after_error()

    process.wait.assert_called_once_with(mock.ANY)


def test_a_rank_that_does_not_end_is_killed() -> None:
    processes = [launched_process(), launched_process()]
    processes[0].wait.side_effect = subprocess.TimeoutExpired("train.py", 15)
    LaunchedRanks(enumerate(processes)).end_after_error()

    for process in processes:
        process.kill.assert_called_once_with()


def test_without_an_error_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value")
    process = launched_process()
    LaunchedRanks({1: process}).end_after_error()

    process.wait.assert_not_called()


@pytest.mark.parametrize(
    ("kind", "options"), [(FabricInProcessLauncher, {}), (InProcessLauncher, {"trainer": "the Trainer"})]
)
def test_a_rank_of_another_launcher_runs_the_function(kind: type[Any], options: dict[str, Any]) -> None:
    """`run` publishes its error."""
    instance = kind()
    instance.run = lambda function, *args, **kwargs: ("run", function(*args, **kwargs))

    assert instance.launch(max, 1, 2, key=abs, **options) == ("run", 2)
