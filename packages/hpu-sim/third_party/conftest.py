"""Fixtures that run third-party programs with torchrun, on a machine of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAMS: Final = Path(__file__).parent / "programs"
_TIME_LIMIT: Final = 240.0


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Return a function that runs two ranks of a program, by name or path, and returns their lines."""

    def run(program: str | Path, *arguments: str | Path) -> list[str]:
        # The tests' own process holds a device of its machine.
        variables = {**os.environ, "HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")), "OMP_NUM_THREADS": "1"}
        for name in ("HLS_MODULE_ID", "ID", "MASTER_ADDR", "MASTER_PORT"):
            variables.pop(name, None)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(
            [*launcher, _PROGRAMS / program, *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
