"""Tests of failure detection: a rank fails, and every other rank exits with an error that names it.

`test_kill_during_save` has a rank that is killed.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_testing import Program

# Written by rank 0.
_NAMED = r"\[rank ?0\].*: rank 1 \(pid \d+ on \S+\) failed.*: KeyError: 'a missing column'"


@pytest.mark.slow
def test_ranks_of_fabric_name_the_rank_that_failed(program: Callable[..., Program]) -> None:
    with program("failure.py", "Fabric") as running:
        done = running.wait(240)

    assert done.code != 0
    assert done.leaked_pids == ()
    assert re.search(_NAMED, done.output), done.output


def test_the_error_is_named_although_a_callback_saves(program: Callable[..., Program], tmp_path: Path) -> None:
    """The job ends at once, and one sentence says why nothing is saved."""
    with program("failure.py", "Trainer", str(tmp_path / "saved")) as running:
        done = running.wait(240)

    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(_NAMED, done.output), done.output
    assert "[rank 1] failed: KeyError: 'a missing column'" in done.output
    assert "RuntimeError: checkpoint saving needs all ranks, and this one has failed before: KeyError" in done.output
    assert not [path for path in (tmp_path / "saved").glob("*") if path.suffix == ".ckpt"]
