"""Plan of a script from Python, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpu_sim.device.config import DEFAULT_GENERATION
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.schema import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Exit code of `hpu-sim plan` if the program does not fit.
DOES_NOT_FIT: Final = 1
#: Exit code of `hpu-sim plan` if the program cannot be planned, or its options are invalid.
CANNOT_PLAN: Final = 2


def run(  # noqa: PLR0913 - one argument per option of the command line
    program: str | Path,
    *arguments: str,
    devices: int = 1,
    nodes: int = 1,
    generations: Sequence[str] = (DEFAULT_GENERATION,),
    release: str | None = None,
    strategies: Sequence[str] = (),
    precision: str | None = None,
    batch_size: int | None = None,
) -> Plan:
    """Plan a script, as `hpu-sim plan` does.

    Args:
        program: Python file.
        *arguments: Its arguments.
        devices: Cards per box.
        nodes: Number of boxes.
        generations: Generations to compare.
        release: SynapseAI release; None for the newest well-known one.
        strategies: Strategies to compare; empty for the program's own.
        precision: Precision that replaces the program's; None for its own.
        batch_size: Batch size per rank that replaces the program's; None for its own.

    Raises:
        PlanError: If the program cannot be planned.
    """
    options = ["--devices", str(devices), "--nodes", str(nodes), "--generation", ",".join(generations)]
    for name, value in (
        ("--release", release),
        ("--strategy", ",".join(strategies)),
        ("--precision", precision),
        ("--batch-size", batch_size),
    ):
        options += [name, str(value)] if value else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        start = [sys.executable, "-c", "from hpu_sim.cli import main; main(prog_name='hpu-sim')", "plan"]
        command = [*start, *options, f"--json={path}", str(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own script
        if done.returncode not in {0, DOES_NOT_FIT} or not path.exists():
            # After lines of progress; those of the program's traceback may begin with the word too.
            *_, message = re.split("^Error: ", done.stderr.strip(), maxsplit=1, flags=re.MULTILINE)
            raise PlanError(message or done.stdout)
        return Plan.from_dict(json.loads(path.read_text(encoding="utf-8")))
