"""What observes a training of the planner's models changes nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

_PROGRAM: Final = Path(__file__).parent / "corpus" / "programs" / "observed.py"
_TIME_LIMIT: Final = 600.0

pytestmark = pytest.mark.timeout(1500)


def _train(attention: str, observation: str = "", **variables: str) -> list[dict[str, Any]]:
    """Return what each training prints."""
    environment = {**os.environ, "HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "0", **variables}
    for name in ("HPU_SIM_MACHINE", "HLS_MODULE_ID"):
        environment.pop(name, None)
    command = [sys.executable, str(_PROGRAM), attention, observation]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"model"')]


@pytest.fixture(scope="module")
def unobserved() -> dict[str, list[dict[str, Any]]]:
    """Return what they print by themselves, by the algorithm of attention."""
    return {attention: _train(attention) for attention in ("sdpa", "eager")}


@pytest.mark.parametrize("observation", ["profile", "HPU_SIM_REPORT", "HPU_SIM_ASYNC", "HPU_SIM_STRICT"])
def test_what_observes_a_training_changes_nothing(
    observation: str, unobserved: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Losses, weights, random numbers, warnings and compiled graphs are the same to the bit.

    Strict mode computes attention of torch by a card's path, which rounds otherwise. Its results are contiguous, and a
    dropout draws in the order of memory.
    """
    attention = "eager" if observation == "HPU_SIM_STRICT" else "sdpa"
    value = str(tmp_path) if observation == "HPU_SIM_REPORT" else "1"

    observed = _train(attention, observation, **({observation: value} if observation.isupper() else {}))

    assert len(observed) == 16
    different = [old["model"] for old, new in zip(unobserved[attention], observed, strict=True) if old != new]
    assert different == (["SegformerForSemanticSegmentation"] if observation == "HPU_SIM_STRICT" else [])
