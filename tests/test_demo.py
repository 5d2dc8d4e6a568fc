"""The demo of the README, as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HPU_SIM = Path(sys.executable).with_name("hpu-sim")


def run(mode: str, folder: Path) -> list[list[str]]:
    """Run the demo on one simulated card and give the rows of its table.

    Args:
        mode: The value of PT_HPU_LAZY_MODE.
        folder: Where the simulator keeps its locks, apart from what else runs on this machine.
    """
    command = [str(HPU_SIM), "run", "--devices", "1", str(ROOT / "examples" / "train_digits.py")]
    environment = os.environ | {"PT_HPU_LAZY_MODE": mode, "HPU_SIM_RUNTIME_DIR": str(folder), "COLUMNS": "100"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


@pytest.mark.parametrize(("mode", "graphs"), [("1", "2"), ("0", "0")], ids=["lazy", "eager"])
def test_demo_trains_on_a_simulated_card(mode: str, graphs: str, tmp_path: Path) -> None:
    """It ends well and its table says that the card is simulated and that no step waited for the host."""
    table = dict(run(mode, tmp_path))

    assert table["device"] == "GAUDI2 (simulated)"
    assert table["mode"] == {"1": "lazy", "0": "eager"}[mode]
    counted = [table[name] for name in ("graphs", "recompilations", "host syncs", "host-to-device copies")]
    assert counted == [graphs, "0", "0", "2"]
