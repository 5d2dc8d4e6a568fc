"""Frames, sites, records and reports with default values."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from hpu_sim.common.encoding import SCHEMA_VERSION
from hpu_sim.common.frames import Frame
from hpu_sim.device.config import SimConfig
from hpu_sim.prediction.step import Cost, Step
from hpu_sim.report.schema import RankRecord, Report, Site

MACHINE: Final = SimConfig.create(2, "GAUDI2", "1.24.1", lazy="1")

_FRAME: Final = Frame("/home/me/train.py", 42, "train", "loss = step(batch)", is_user=True)
_SITE: Final = Site(
    kind="host_sync",
    op="aten::_local_scalar_dense",
    variant="",
    cause="",
    backward=None,
    frame_index=0,
    stack=(_FRAME,),
    count=10,
    bytes=0,
    in_first_step=1,
    steps=10,
    last_step=10,
    examples=[],
)
COSTS: Final = (
    Cost("/home/me/train.py:42", "memory", 0.0005, 0, 10 << 30, 2, "copy_"),
    Cost("", "memory", 0.000125, 0, 0, 1, ""),
)
PREDICTED: Final = Step(0.001, 0.00125, 0.002, {"memory": 1.0}, 0, COSTS, ())
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
_RECORD: Final = RankRecord(
    rank=0,
    world_size=1,
    pid=1234,
    module_id=0,
    machine=MACHINE,
    torch="2.13.0",
    state="exited",
    totals=_TOTALS,
    steps=10,
    sites=(),
    dropped_events=0,
    recording_error=None,
)


def make_frame(**changes: Any) -> Frame:
    """Return a frame of the program."""
    return dataclasses.replace(_FRAME, **changes)


def make_site(**changes: Any) -> Site:
    """Return a host sync with one event in each of ten steps."""
    return dataclasses.replace(_SITE, **changes)


def make_record(*, totals: dict[str, int] | None = None, **changes: Any) -> RankRecord:
    """Return the record of a rank with ten steps in lazy mode and no sites; `totals` updates the counters."""
    return dataclasses.replace(_RECORD, totals={**_TOTALS, **(totals or {})}, **changes)


def make_report(*records: RankRecord, **changes: Any) -> Report:
    """Return the report of a program that exited with code 0."""
    report = Report(SCHEMA_VERSION, True, ("train.py", "--epochs", "3"), 0, "2026-01-02T03:04:05+00:00", records, ())
    return dataclasses.replace(report, **changes)
