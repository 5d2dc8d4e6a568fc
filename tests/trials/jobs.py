"""Jobs that train as training.py does: their command, their results and their processes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

TRAIN: Final = Path(__file__).with_name("training.py")
BIN: Final = Path(sys.executable).parent
# Variables of a job; torchrun, ray and hpu-launch are beside Python.
VARIABLES: Final = {"PATH": f"{BIN}:{os.environ['PATH']}", "PT_HPU_LAZY_MODE": "0"}
# Batches of an epoch on two ranks.
BATCHES: Final = 4

Results = list[dict[str, Any]]


def script(folder: Path, devices: int, *options: str) -> list[str]:
    """Return the training and its arguments.

    Args:
        folder: Folder of checkpoints and results.
        devices: Number of ranks of each machine.
        *options: More options of training.py.
    """
    common = ["--strategy", "ddp", "--checkpoints", "--dropout", "0.1", "--folder", str(folder)]
    return [str(TRAIN), *common, "--devices", str(devices), *options]


def results(folder: Path, ranks: int) -> Results:
    """Return what each rank has written; nothing for a rank that has not finished."""
    files = [folder / f"rank-{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def are_equal(found: Results, expected: Results) -> bool:
    """Return whether weights and loss of every rank are as expected."""
    keys = ("weights", "loss")
    return [[rank[key] for key in keys] for rank in found] == [[rank[key] for key in keys] for rank in expected]


def find_pids(folder: Path, program: str | None = None) -> list[int]:
    """Return the processes with a folder in their command line, the engine's and the ranks'.

    Args:
        folder: The folder.
        program: Name of the program; any where None.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # A process that ends in between.
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            name = Path(os.fsdecode(command.partition(b"\0")[0])).name
            if os.fsencode(folder) in command and program in {None, name}:
                found.append(int(entry.name))
    return found
