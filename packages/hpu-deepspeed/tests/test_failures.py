"""Tests of failure detection: a rank fails, and every other rank exits with an error that names it."""

import re
from collections.abc import Callable
from pathlib import Path

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


def test_the_error_is_named_although_a_callback_saves(program: Callable[..., Program], tmp_path: Path) -> None:
    """The job ends at once, and one sentence says why nothing is saved."""
    with program("failure.py", "Trainer", "raises", str(tmp_path / "saved")) as running:
        done = running.wait(240)

    assert (done.code, done.leaked_pids) == (1, ())
    assert "[rank 1] failed: KeyError: 'a missing column'" in done.output
    assert "RuntimeError: checkpoint saving needs all ranks, and this one has failed before: KeyError" in done.output
    assert not [path for path in (tmp_path / "saved").glob("*") if path.suffix == ".ckpt"]
