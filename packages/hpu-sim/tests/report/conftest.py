"""Records and reports to show, and the command that makes real ones."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.report.schema import SCHEMA_VERSION, Frame, Machine, RankRecord, Report, Site, Steps, from_dict

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS: Final = Path(__file__).parent / "programs"

_TOTALS: Final = {
    "graphs": 20,
    "recompilations": 3,
    "host_syncs": 10,
    "h2d_copies": 12,
    "h2d_bytes": 4096,
    "d2h_copies": 10,
    "d2h_bytes": 40,
    "collectives": 0,
    "collective_bytes": 0,
    "allocated_bytes": 1 << 20,
    "peak_bytes": 3 << 30,
    "compilations": 7,
}


@pytest.fixture
def make_frame() -> Callable[..., Frame]:
    """Makes a line of a program."""
    frame = Frame("/home/me/train.py", 42, "train", "loss = step(batch)", is_user=True)
    return lambda **changes: dataclasses.replace(frame, **changes)


@pytest.fixture
def make_site(make_frame: Callable[..., Frame]) -> Callable[..., Site]:
    """Makes a host sync that happened once in each of ten steps, unless told otherwise."""
    site = Site(
        kind="host_sync",
        op="aten::_local_scalar_dense",
        variant="",
        backward=None,
        frame_index=0,
        stack=(make_frame(),),
        count=10,
        bytes=0,
        in_first_step=1,
        steps=10,
        first_step=1,
        last_step=10,
        max_per_step=1,
        examples=(),
    )
    return lambda **changes: dataclasses.replace(site, **changes)


@pytest.fixture
def make_record() -> Callable[..., RankRecord]:
    """Makes the record of a rank that did ten steps in lazy mode and met nothing, unless told otherwise."""
    record = RankRecord(
        rank=0,
        world_size=1,
        pid=1234,
        module_id=0,
        machine=Machine(2, "GAUDI2", "1.24.1", lazy=True, memory_bytes=96 << 30, torch="2.13.0"),
        state="exited",
        uncaught_error=None,
        detail="lines",
        totals=_TOTALS,
        steps=Steps(10, ((1, 8),), 1, (1,) * 10, (4, 3, *(0,) * 8), (4096, *(0,) * 9)),
        optimizer_memory=None,
        sites=(),
        compilations=(),
        collectives=(),
        dropped_events=0,
        recording_error=None,
    )

    def make(**changes: Any) -> RankRecord:
        totals = {**_TOTALS, **changes.pop("totals", {})}
        return dataclasses.replace(record, totals=totals, **changes)

    return make


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """Makes the report of a run that ended well."""

    def make(*records: RankRecord, **changes: Any) -> Report:
        report = Report(
            SCHEMA_VERSION, True, ("train.py", "--epochs", "3"), 0, "2026-01-02T03:04:05+00:00", records, ()
        )
        return dataclasses.replace(report, **changes)

    return make


@pytest.fixture
def run_recorded(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]) -> Callable[..., Any]:
    """Runs a program of ``programs/`` with a report asked for; returns how it ended, and the report."""

    def run(program: str, *arguments: str, devices: int = 1, **variables: str) -> tuple[Any, Report]:
        path = tmp_path / "report.json"
        command = Path(sys.executable).with_name("hpu-sim")
        done = subprocess.run(
            [command, "run", "--devices", str(devices), "--report", path, PROGRAMS / program, *arguments],
            env=fresh_environment({"PT_HPU_LAZY_MODE": "1", **variables}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done, from_dict(Report, json.loads(path.read_text(encoding="utf-8")))

    return run
