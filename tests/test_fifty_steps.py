"""Fifty steps of tiny language models: context parallelism, and fp8 with sharded weights, against one card.

docs/records/parity.md has the numbers of a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", minversion="5", reason="Requires: transformers 5")

HPU_SIM = Path(sys.executable).with_name("hpu-sim")
PROGRAM = Path(__file__).parent / "programs" / "fifty_steps.py"


def _train(ranks: int, folder: Path) -> dict[str, Any]:
    """Return losses and weights by case, after all ranks had the same losses."""
    command = [str(HPU_SIM), "run", "--quiet", "--devices", str(ranks), str(PROGRAM), str(folder / "run"), str(ranks)]
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(folder / "runtime")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = [torch.load(folder / f"run.{rank}", weights_only=False) for rank in range(ranks)]
    assert all(each[name]["losses"] == pytest.approx(run["losses"]) for each in found for name, run in found[0].items())
    return found[0]


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_losses_and_weights_are_those_of_one_card(tmp_path: Path) -> None:
    """In float32 to 1e-5. In fp8 the order of sums changes roundings, which are a hundred thousand times larger."""
    alone = _train(1, tmp_path)

    for ranks in (2, 4):
        for name, run in _train(ranks, tmp_path).items():
            model, _, strategy = name.rpartition(", ")
            is_fp8 = strategy.endswith("fp8")
            expected = alone[f"{model}, one card fp8" if is_fp8 else model]
            losses, other = torch.tensor(run["losses"]), torch.tensor(expected["losses"])
            loss = float((losses - other).abs().mean() if is_fp8 else (losses - other).abs().max())
            # A tied weight has one name with DeepSpeed.
            weights = [(value - expected["weights"][key]).abs().max() for key, value in run["weights"].items()]
            assert len(weights) > 20, name
            weight = float(torch.stack(weights).max())
            sys.stdout.write(f"{ranks} ranks, {name}: losses {loss:.2g}, weights {weight:.2g}\n")
            assert len(losses) == 50, name
            assert other[-8:].mean() < other[:8].mean() - 0.4, name
            assert loss < (0.05 if is_fp8 else 1e-5), name
            assert weight < (0.15 if is_fp8 else 1e-5), name
