"""Tests of failure detection: a rank fails, and every other rank exits with an error that names it."""

import re
from collections.abc import Callable

import pytest

from hpu_testing import Program


@pytest.mark.parametrize(
    ("api", "how", "cause"),
    [
        ("Trainer", "killed", "exited.*: killed by signal 9"),
        ("Fabric", "raises", "failed.*: KeyError: 'a missing column'"),
    ],
)
def test_other_ranks_name_the_rank_that_failed(api: str, how: str, cause: str, program: Callable[..., Program]) -> None:
    with program("failure.py", api, how) as running:
        done = running.wait(240)

    assert done.code != 0
    assert done.leaked_pids == ()
    assert re.search(rf"\[rank ?0\].*: rank 1 \(pid \d+ on \S+\) {cause}", done.output), done.output
