"""A runner of the programs in ``programs/`` that records a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.common.encoding import from_dict
from hpu_sim.report.schema import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAMS: Final = Path(__file__).parent / "programs"


@pytest.fixture
def run_recorded(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]], forks: None) -> Callable[..., Any]:
    """Return a function that runs a program with ``--report`` and returns the completed process and the report."""

    def run(
        program: str,
        *arguments: str,
        devices: int = 1,
        reports: Sequence[Path] = (),
        snapshot: Sequence[Path] = (),
        **variables: str,
    ) -> tuple[Any, Report]:
        path = tmp_path / "report.json"
        command = Path(sys.executable).with_name("hpu-sim")
        options = [option for each in (path, *reports) for option in ("--report", each)]
        options += [option for each in snapshot for option in ("--memory-snapshot", each)]
        done = subprocess.run(
            [command, "run", "--devices", str(devices), *options, PROGRAMS / program, *arguments],
            env=fresh_environment({"PT_HPU_LAZY_MODE": "1", **variables}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done, from_dict(Report, json.loads(path.read_text(encoding="utf-8")))

    return run
