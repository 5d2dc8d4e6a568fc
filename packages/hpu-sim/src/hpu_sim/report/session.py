"""Recording session of one process, from activation of the simulator to the record file.

``HPU_SIM_REPORT`` names a folder. Every process that acquires a device writes its record there, at exit and
periodically before that, so the record of a killed process holds its last known state. :mod:`hpu_sim.report.merge`
combines the records.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import multiprocessing.util
import os
import sys
import time
from typing import TYPE_CHECKING, Final, Literal

from hpu_sim.common import frames
from hpu_sim.device import events
from hpu_sim.device.config import REPORT_VARIABLE
from hpu_sim.device.counters import leniences, lifetime_stats
from hpu_sim.prediction.steps import StepTracker
from hpu_sim.report.schema import RECORDED_STEP, RankRecord
from hpu_sim.report.sites import SiteRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hpu_sim.device.config import SimConfig
    from hpu_sim.device.events import Event
    from hpu_sim.report.step_clock import StepClock

# Minimum time between two writes of a record, in seconds, and the maximum share of time spent on them.
_WRITE_INTERVAL: Final = 2.0
_MAX_OVERHEAD: Final = 0.02


class RecordingSession:
    """Recording of one process.

    There is one session per process. A forked child starts its own.

    Args:
        folder: Value of ``HPU_SIM_REPORT``.
        config: Simulated machine.

    Raises:
        ValueError: If the folder does not exist.
    """

    def __init__(self, folder: Path, config: SimConfig) -> None:
        if not folder.is_dir():
            raise ValueError(f"`{REPORT_VARIABLE}` must be an existing folder, got {str(folder)!r}")
        self._folder = folder
        self._config = config
        self._is_child = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self._clock: StepClock | None = None
        self._reset()

    def _reset(self) -> None:
        self._stop()
        self._pid = os.getpid()
        self._module_id: int | None = None
        self._finished = False
        self._rank: tuple[int, int] | None = None
        self._next_write = time.monotonic() + _WRITE_INTERVAL
        self._steps = StepTracker(self._on_step)
        self._sites = SiteRecorder(self._steps)
        self._clock = None
        self._unsubscribe = events.subscribe(events.DIAGNOSTICS | {"optimizer_end"}, self._on_event)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.close()
        self._unsubscribe()

    def start(self) -> None:
        """Register the hooks for forks and process exit."""
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.finish)

    def _after_fork(self) -> None:
        self._is_child = True
        self._reset()

    def on_device_acquired(self, module_id: int) -> None:
        """Write a first record, so that the report also lists a process that is killed later."""
        self._module_id = module_id
        if self._is_child:
            # A forked child of multiprocessing exits without running atexit handlers.
            multiprocessing.util.Finalize(self, self.finish, exitpriority=0)
        self._write("running")

    def finish(self) -> None:
        """Stop recording and write the final record.

        Does nothing more if the process has no device, if it was forked, or on a second call.
        """
        if self._finished or self._module_id is None or os.getpid() != self._pid:
            return
        self._finished = True
        if self._steps.is_ending:
            self._steps.end()
        self._stop()
        self._write("exited")

    def _on_step(self) -> None:
        if self._clock is not None:
            self._clock.on_step()
        elif self._steps.step == RECORDED_STEP - 1:
            from hpu_sim.prediction import torch_tools

            if torch_tools.is_supported():
                from hpu_sim.report.step_clock import StepClock

                self._clock = StepClock(self._config, self._steps)

    def _on_event(self, event: Event) -> None:
        if event.kind == "optimizer_end" and self._module_id is None:
            return
        self._sites.on_event(event, frames.event_frame())
        if event.kind == "collective":
            self._update_rank()
        self._write_if_due()

    def _update_rank(self) -> None:
        # During the run, because programs destroy the process group before they exit.
        if self._rank is None:
            distributed = sys.modules.get("torch.distributed")
            if distributed is not None and distributed.is_available() and distributed.is_initialized():
                self._rank = (distributed.get_rank(), distributed.get_world_size())

    def _write_if_due(self) -> None:
        begin = time.monotonic()
        if self._module_id is not None and begin >= self._next_write:
            self._write("running")
            end = time.monotonic()
            self._next_write = end + max(_WRITE_INTERVAL, (end - begin) / _MAX_OVERHEAD)

    def _write(self, state: Literal["running", "exited"]) -> None:
        path = self._folder / f"process-{self._pid}.json"
        temporary = path.with_suffix(".part")
        try:
            temporary.write_text(json.dumps(dataclasses.asdict(self.record(state))), encoding="utf-8")
            temporary.replace(path)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            sys.stderr.write(f"hpu-sim: cannot write the record {path}: {error}\n")

    def record(self, state: Literal["running", "exited"]) -> RankRecord:
        """Return the record of everything so far."""
        import torch

        self._update_rank()
        rank, world_size = self._rank or _rank_from_env(os.environ)
        return RankRecord(
            rank=rank,
            world_size=world_size,
            pid=self._pid,
            module_id=self._module_id or 0,
            machine=self._config,
            torch=str(torch.__version__),
            state=state,
            totals=lifetime_stats(),
            steps=self._steps.finished,
            sites=self._sites.sites(),
            dropped_events=self._sites.dropped_events,
            recording_error=self._sites.recording_error,
            predicted=None if self._clock is None else self._clock.predicted,
            notes=() if self._clock is None else tuple(sorted(self._clock.notes)),
            leniences=leniences(),
        )


def _rank_from_env(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and world size from the variables of torchrun or Open MPI, by default 0 and 1."""
    for rank, world_size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        values = environment.get(rank, ""), environment.get(world_size, "")
        if values[0].isdecimal() and values[1].isdecimal():
            return int(values[0]), int(values[1])
    return 0, 1
