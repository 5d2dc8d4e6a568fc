"""A rank raises an error, and a callback saves a checkpoint, which needs all ranks."""

import re
import sys
from pathlib import Path

import pytest

from hpu_testing import Program, machine_env

PROGRAM = Path(__file__).parent / "programs" / "failure.py"


@pytest.mark.parametrize(
    "kind",
    ["full", pytest.param("sharded", marks=pytest.mark.slow), pytest.param("async", marks=pytest.mark.slow)],
)
def test_the_error_is_named_although_a_callback_saves(kind: str, tmp_path: Path) -> None:
    """The job ends at once, and one sentence says why nothing is saved."""
    environment = machine_env(2, tmp_path / "cards", PT_HPU_LAZY_MODE="0")
    command = [sys.executable, str(PROGRAM), kind, str(tmp_path / "saved")]
    with Program(command, environment, tmp_path, preloaded=True) as program:
        done = program.wait(150)

    assert (done.code, done.leaked_pids) == (1, ())
    assert "[rank 1] failed: ValueError: invalid batch" in done.output
    reason = "needs all ranks, and this one has failed before: ValueError: invalid batch"
    assert f"RuntimeError: checkpoint saving {reason}" in done.output, done.output
    named = r"(RankFailedError|aborting): rank 1 \(pid \d+ on \S+\) failed.*: ValueError: invalid batch"
    assert re.search(named, done.output)
    assert not [path for path in (tmp_path / "saved").glob("*") if path.suffix == ".ckpt"]
