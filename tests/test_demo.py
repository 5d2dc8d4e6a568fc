"""Test of the README's demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpu_testing.fork_server import forks

ROOT = Path(__file__).parent.parent
HPU_SIM = Path(sys.executable).with_name("hpu-sim")


@dataclass(frozen=True)
class Output:
    """Output of a run.

    Attributes:
        table: Rows of the table.
        ranks: Lines of the ranks, in order.
    """

    table: dict[str, str]
    ranks: list[str]


def run(devices: int, mode: str, folder: Path) -> Output:
    """Run the script on simulated cards.

    Args:
        devices: Number of cards.
        mode: Value of PT_HPU_LAZY_MODE.
        folder: Folder that names the simulated machine, so that other programs take none of its cards.
    """
    command = [str(HPU_SIM), "run", "--devices", str(devices), str(ROOT / "tools" / "demo.py")]
    environment = os.environ | {"PT_HPU_LAZY_MODE": mode, "HPU_SIM_RUNTIME_DIR": str(folder), "COLUMNS": "100"}
    with forks():
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return Output(
        dict([cell.strip() for cell in row.strip("│").split("│")] for row in rows),
        # The line may follow another rank's progress bar.
        sorted(re.findall(r"rank \d+ of .+? weights [0-9a-f]{12}", result.stdout)),
    )


# `nox -s demo` runs it in each pull request, and packages' tests count graphs, host syncs and collectives of a step.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "mode", "device", "counts"),
    [
        (2, "1", "2 x GAUDI2 (simulated)", ["2", "0", "0", "2", "1"]),
        (1, "0", "GAUDI2 (simulated)", ["0", "0", "0", "2", "0"]),
    ],
    ids=["two cards in lazy mode", "one card in eager mode"],
)
def test_training_on_the_simulator(devices: int, mode: str, device: str, counts: list[str], tmp_path: Path) -> None:
    """Ranks end with the same weights, the output says "simulated", and no step has a host sync."""
    output = run(devices, mode, tmp_path)

    assert output.table["device"] == device
    assert output.table["mode"] == {"1": "lazy", "0": "eager"}[mode]
    names = ("graphs", "recompilations", "host syncs", "host-to-device copies", "collectives")
    assert [output.table[name] for name in names] == counts
    assert [line.split(":")[0] for line in output.ranks] == [
        f"rank {rank} of {devices} on GAUDI2 (simulated)" for rank in range(devices)
    ]
    assert len({line.split("weights ")[1] for line in output.ranks}) == 1
