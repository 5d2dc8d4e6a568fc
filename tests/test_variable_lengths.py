"""Training with and without buckets on 1, 2 and 4 simulated cards; `-rP` shows the figures of the documentation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from hpu_testing import Program, machine_env

_PROGRAM = Path(__file__).parent / "programs" / "variable_lengths.py"
# The optimizer's graphs compile in the first steps.
_FIRST_STEPS = 2


def _train(devices: int, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Train and return the measurements of each rank."""
    folder.mkdir()
    environment = machine_env(devices, folder / "cards", PT_HPU_LAZY_MODE="1", PYTHONWARNINGS="ignore")
    command = [sys.executable, str(_PROGRAM), str(folder), "--devices", str(devices), *options]
    with Program(command, environment, folder) as program:
        done = program.wait(800)
    assert done.code == 0, done.output
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(devices)]


def _padding(ranks: list[dict[str, Any]]) -> float:
    rows = [row for rank in ranks for row in rank["steps"]]
    return 1.0 - sum(float(row["tokens"]) for row in rows) / sum(float(row["padded_tokens"]) for row in rows)


def _seconds_per_token(ranks: list[dict[str, Any]]) -> float:
    """Return the time of the slowest rank of each step, per token without padding."""
    steps = list(zip(*(rank["steps"] for rank in ranks), strict=True))[_FIRST_STEPS:]
    tokens = sum(float(row["tokens"]) for step in steps for row in step)
    return sum(max(float(row["seconds"]) for row in step) for step in steps) / tokens


def _compilations(ranks: list[dict[str, Any]]) -> list[int]:
    return [sum(row["compilations"] for row in rank["steps"][_FIRST_STEPS:]) for rank in ranks]


def _waits(ranks: list[dict[str, Any]]) -> int:
    """Return the number of steps in which a rank compiles, so that the others wait."""
    steps = list(zip(*(rank["steps"] for rank in ranks), strict=True))[_FIRST_STEPS:]
    return sum(any(row["compilations"] for row in step) for step in steps)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_buckets_end_recompilations(devices: int, tmp_path: Path) -> None:
    plain = _train(devices, tmp_path / "plain")
    buckets = _train(devices, tmp_path / "buckets", "--buckets")

    ratio = _seconds_per_token(buckets) / _seconds_per_token(plain)
    print(  # noqa: T201 - the figures of the documentation
        f"\n{devices} simulated cards, {len(buckets[0]['boundaries'])} buckets: compilations per rank "
        f"{mean(_compilations(plain)):.1f} -> {mean(_compilations(buckets)):.0f}, steps with one {_waits(plain)} of "
        f"{len(plain[0]['steps'])} -> {_waits(buckets)}, padding {_padding(plain):.1%} -> {_padding(buckets):.1%}, "
        f"time per token x {ratio:.2f}"
    )
    assert _compilations(buckets) == [0] * devices
    assert all(rank["violations"] == [] for rank in buckets)
    assert sum(_compilations(plain)) > 10
    assert _padding(buckets) < _padding(plain)
    for step in zip(*(rank["steps"] for rank in buckets), strict=True):
        assert len({row["length"] for row in step}) == 1
    expected = {index: loss for rank in plain for index, loss in rank["losses"].items()}
    ours = {index: loss for rank in buckets for index, loss in rank["losses"].items()}
    assert len(ours) == 384
    for index, loss in expected.items():
        assert ours[index] == pytest.approx(loss, rel=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("option", [("--accumulate", "2"), ("--graphs",)], ids=["accumulation", "graphs"])
def test_two_ranks_do_not_recompile(option: tuple[str, ...], tmp_path: Path) -> None:
    plain = _train(2, tmp_path / "plain", "--buckets")
    ranks = _train(2, tmp_path / "other", "--buckets", *option)

    assert _compilations(ranks) == [0, 0]
    assert all(rank["violations"] == [] for rank in ranks)
    # The learning rate is 0, so no loss depends on when the optimizer steps.
    for own, other in zip(ranks, plain, strict=True):
        assert own["losses"] == pytest.approx(other["losses"], rel=1e-4)
