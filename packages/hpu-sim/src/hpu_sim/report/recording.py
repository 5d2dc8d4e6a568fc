"""Recording in one process: from the start of the simulator to the file that the process leaves behind.

``HPU_SIM_REPORT`` names a folder. Each process that takes a card writes a record there, again and again while it runs,
so that a killed one leaves what was known last; :mod:`hpu_sim.report.gathering` puts the records together.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing.util
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.config import REPORT_DETAIL_VARIABLE, REPORT_VARIABLE
from hpu_sim.counters import lifetime_stats
from hpu_sim.report.ending import ending_of_process
from hpu_sim.report.model import Machine, RankRecord, encode
from hpu_sim.report.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.config import SimConfig
    from hpu_sim.native import Native
    from hpu_sim.report.model import Detail

# A record is written at most this often, in seconds, and so that writing takes at most this share of the time.
_INTERVAL: Final = 2.0
_SHARE: Final = 0.02
# Where there are no training steps, the clock is looked at after so many events.
_EVENTS: Final = 1024
# Events or steps after which a process without a process group is taken to have none.
_RANK_LOOKUPS: Final = 100


def from_environment(environment: Mapping[str, str], config: SimConfig, device: Native) -> Recording:
    """Return the recording that ``HPU_SIM_REPORT`` and ``HPU_SIM_REPORT_DETAIL`` ask for, not started yet.

    Args:
        environment: Variables of the process.
        config: The machine.
        device: The device.

    Raises:
        ValueError: If a variable has a value that cannot be.
    """
    folder = environment[REPORT_VARIABLE]
    if not Path(folder).is_dir():
        raise ValueError(f"`{REPORT_VARIABLE}` must name a folder that exists, got {folder!r}")
    detail = environment.get(REPORT_DETAIL_VARIABLE) or "lines"
    if detail not in {"counts", "lines"}:
        raise ValueError(f"`{REPORT_DETAIL_VARIABLE}` must be 'counts' or 'lines', got {detail!r}")
    return Recording(Path(folder), "counts" if detail == "counts" else "lines", config, device)


class Recording:
    """What one process records. There is one per process; a forked child has its own."""

    def __init__(self, folder: Path, detail: Detail, config: SimConfig, device: Native) -> None:
        """Prepare to record.

        Args:
            folder: Where the record goes.
            detail: "lines" to listen to every event, "counts" to keep totals only, which costs nothing.
            config: The machine.
            device: The device.
        """
        self._folder = folder
        self._detail: Detail = detail
        self._config = config
        self._device = device
        self._forked = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._card: int | None = None
        self._finished = False
        self._rank: tuple[int, int] | None = None
        self._rank_lookups = 0
        self._next_write = time.monotonic() + _INTERVAL
        self._events = 0
        self._recorder = Recorder()
        if self._detail == "lines":
            self._device.set_listener(self._take)

    def start(self) -> None:
        """See to it that optimizer steps are noticed and that the record is written when the process ends."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._optimizer_stepped)
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.finish)

    def _after_fork(self) -> None:
        self._forked = True
        self._begin()

    def card_taken(self, card: int) -> None:
        """Note the card, and leave a first record: who wrote one is missed if it never ends.

        Args:
            card: Number of the card.
        """
        self._card = card
        if self._forked:
            # A forked child of multiprocessing leaves without what atexit promised.
            multiprocessing.util.Finalize(self, self.finish, exitpriority=0)
        self._write("running")

    def finish(self) -> None:
        """Stop, and leave the last record; nothing without a card, in a forked child, or the second time."""
        if self._finished or self._card is None or os.getpid() != self._pid:
            return
        self._finished = True
        self._device.set_listener(None)
        self._write("ended")

    def _take(self, kind: str, op: str, detail: str, size: int) -> None:
        self._recorder.listen(kind, op, detail, size, sys._getframe().f_back)  # noqa: SLF001 - anything else costs more
        if kind == "collective":
            self._note_rank()
        self._events += 1
        if self._events % _EVENTS == 0:
            self._write_if_due()

    def _optimizer_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if self._card is None or self._finished:
            return
        if self._detail == "counts":
            self._note_rank()
            self._recorder.optimizer_stepped(optimizer, None)
            return
        self._recorder.optimizer_stepped(optimizer, sys._getframe().f_back)  # noqa: SLF001 - as above
        self._write_if_due()

    def _note_rank(self) -> None:
        # Early, for a process group may be gone at the end, but not for ever, for most programs have none.
        if self._rank is None and self._rank_lookups < _RANK_LOOKUPS:
            self._rank_lookups += 1
            distributed = sys.modules.get("torch.distributed")
            if distributed is not None and distributed.is_available() and distributed.is_initialized():
                self._rank = (distributed.get_rank(), distributed.get_world_size())

    def _write_if_due(self) -> None:
        begin = time.monotonic()
        if self._card is not None and begin >= self._next_write:
            self._write("running")
            end = time.monotonic()
            self._next_write = end + max(_INTERVAL, (end - begin) / _SHARE)

    def _write(self, state: Literal["running", "ended"]) -> None:
        path = self._folder / f"process-{self._pid}.json"
        draft = path.with_suffix(".part")
        try:
            draft.write_text(json.dumps(encode(self.record(state))), encoding="utf-8")
            draft.replace(path)
        except Exception as error:  # noqa: BLE001 - a full disk, or a fault in here, must not become one of the program
            sys.stderr.write(f"hpu-sim: the record {path} cannot be written ({error})\n")

    def record(self, state: Literal["running", "ended"]) -> RankRecord:
        """Return what was recorded so far.

        Args:
            state: Whether the process is about to end.
        """
        self._rank_lookups = 0
        self._note_rank()
        rank, world_size = self._rank or _rank_by_launcher(os.environ)
        return RankRecord(
            rank=rank,
            world_size=world_size,
            pid=self._pid,
            card=self._card or 0,
            machine=_describe(self._config),
            state=state,
            ending=ending_of_process() if state == "ended" else None,
            detail=self._detail,
            totals=lifetime_stats(),
            steps=self._recorder.steps(),
            model=self._recorder.model(),
            sites=self._recorder.sites(),
            compilations=tuple(self._recorder.compilations),
            collectives=self._recorder.collectives(),
            unplaced=self._recorder.unplaced,
            problem=self._recorder.problem,
        )


def _describe(config: SimConfig) -> Machine:
    import torch

    return Machine(
        devices=config.devices,
        generation=config.generation,
        release=config.release.version,
        lazy=config.lazy,
        memory_bytes=config.memory_bytes,
        torch=str(torch.__version__),
    )


def _rank_by_launcher(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of ranks as torch's or Open MPI's launcher gives them, else those of a lone process."""
    for rank, world_size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        values = environment.get(rank, ""), environment.get(world_size, "")
        if values[0].isdecimal() and values[1].isdecimal():
            return int(values[0]), int(values[1])
    return 0, 1
