"""Launchers that start no process."""

from typing import Any

import pytest

from hpu_core.distributed.launcher import FabricInProcessLauncher, InProcessLauncher


@pytest.mark.parametrize(
    ("kind", "options"), [(FabricInProcessLauncher, {}), (InProcessLauncher, {"trainer": "the Trainer"})]
)
def test_a_rank_of_another_launcher_runs_the_function(kind: type[Any], options: dict[str, Any]) -> None:
    """`run` publishes its error."""
    instance = kind()
    instance.run = lambda function, *args, **kwargs: ("run", function(*args, **kwargs))

    assert instance.launch(max, 1, 2, key=abs, **options) == ("run", 2)
