"""The demo of the README, as a person runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HPU_SIM = Path(sys.executable).with_name("hpu-sim")


@dataclass(frozen=True)
class Demo:
    """What a run of the demo printed.

    Attributes:
        table: The rows of its table.
        ranks: The line of each rank, in order.
    """

    table: dict[str, str]
    ranks: list[str]


def run(cards: int, mode: str, folder: Path) -> Demo:
    """Run the demo on simulated cards.

    Args:
        cards: How many.
        mode: The value of PT_HPU_LAZY_MODE.
        folder: Where the simulator keeps its locks, apart from what else runs on this machine.
    """
    command = [str(HPU_SIM), "run", "--devices", str(cards), str(ROOT / "examples" / "train_digits.py")]
    environment = os.environ | {"PT_HPU_LAZY_MODE": mode, "HPU_SIM_RUNTIME_DIR": str(folder), "COLUMNS": "100"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return Demo(
        dict([cell.strip() for cell in row.strip("│").split("│")] for row in rows),
        # Not at the start of a line, where another rank's progress bar may be.
        sorted(re.findall(r"rank \d+ of .+? weights \w+", result.stdout)),
    )


@pytest.mark.parametrize(
    ("cards", "mode", "device", "counts"),
    [
        (2, "1", "2 x GAUDI2 (simulated)", ["2", "0", "0", "2", "1"]),
        (1, "0", "GAUDI2 (simulated)", ["0", "0", "0", "2", "0"]),
    ],
    ids=["two cards in lazy mode", "one card in eager mode"],
)
def test_demo_trains_on_simulated_cards(cards: int, mode: str, device: str, counts: list[str], tmp_path: Path) -> None:
    """It ends well, all ranks with the same weights, says that cards are simulated, and no step waited for the host."""
    demo = run(cards, mode, tmp_path)

    assert demo.table["device"] == device
    assert demo.table["mode"] == {"1": "lazy", "0": "eager"}[mode]
    names = ("graphs", "recompilations", "host syncs", "host-to-device copies", "collectives")
    assert [demo.table[name] for name in names] == counts
    assert [line.split(":")[0] for line in demo.ranks] == [
        f"rank {rank} of {cards} on GAUDI2 (simulated)" for rank in range(cards)
    ]
    assert len({line.split("weights ")[1] for line in demo.ranks}) == 1
