"""A runner of the programs in ``programs/`` that records a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.common.encoding import from_dict
from hpu_sim.report.schema import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAMS: Final = Path(__file__).parent / "programs"


@pytest.fixture
def run_recorded(tmp_path: Path, hpu_sim_command: Callable[..., Any], forks: None) -> Callable[..., Any]:
    """Return a function that runs a program with ``--report`` and returns the completed process and the report."""

    def run(
        program: str,
        *arguments: str,
        devices: int = 1,
        reports: Sequence[Path] = (),
        **variables: str,
    ) -> tuple[Any, Report]:
        path = tmp_path / "report.json"
        options = [option for each in (path, *reports) for option in ("--report", each)]
        command = ["run", "--devices", str(devices), *options, PROGRAMS / program, *arguments]
        done = hpu_sim_command(*command, **{"PT_HPU_LAZY_MODE": "1", **variables})
        return done, from_dict(Report, json.loads(path.read_text(encoding="utf-8")))

    return run
