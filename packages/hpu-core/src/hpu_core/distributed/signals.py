"""Signals: all ranks of a Trainer handle SIGTERM, and SLURM's for a requeue, before the same training batch.

From 2.5.5 on, Lightning broadcasts before each batch: a collective and a host-device synchronization in every step. In
earlier loops each rank acts on its own signal, and one may stop a batch before the others. The handler for a requeue
saves wherever the signal finds a rank. Here the ranks ask in the job's store, about once a second.
"""

import json
import logging
import signal
import time
from typing import TYPE_CHECKING, Any, Final

from hpu_core._lightning import SIGTERMException, rank_zero_info
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.distributed.rendezvous import Store, set_first

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

_log = logging.getLogger(__name__)

# The methods of Lightning's that have no public seam; tests compare them with every Lightning.
NOTIFIER = "_sigterm_notifier_fn"
REQUEUER = "_slurm_sigusr_handler_fn"
SYNCHRONIZER = "_broadcast_sigterm_tensor"

# Batches between two questions at most.
_MAX_BATCHES: Final = 1000


class SharedSignals:
    """Signals that all ranks handle before the same batch.

    Before some batches, the same on all ranks, each asks the store. The first rank that asks answers for all: which
    signals they handle, and before which batch they ask again.

    Attributes:
        received: Signals of this rank that no answer has yet.
    """

    def __init__(self, process_groups: ProcessGroupManager) -> None:
        self._process_groups, self._store = process_groups, process_groups.control_store
        self.received: set[int] = set()
        self._batch, self._next = -1, 0
        # For which batch it asked last, and when.
        self._asked, self._time = 0, time.monotonic()

    def before_batch(self) -> set[int]:
        """Return the signals that all ranks handle before the training batch that is about to start."""
        self._batch += 1
        if self._store is None:
            received, self.received = self.received, set()
            return received
        if self._batch < self._next:
            return set()
        now, passed = time.monotonic(), self._batch - self._asked
        # About a second; soon again at first, when it is not known how long a batch takes.
        interval = max(1, min(int(passed / max(now - self._time, 1e-6)), self._batch, _MAX_BATCHES))
        self._asked, self._time = self._batch, now
        # Without its network, a rank waits for the answer.
        with self._process_groups.step("the agreement on signals"):
            try:
                signals, self._next = self._answer(self._store, self._batch, interval)
                batch = self._next
                while self.received:
                    # Answer for all before the next batch that none has asked for.
                    batch = self._answer(self._store, batch, 1)[1]
            except (OSError, RuntimeError) as error:
                _log.warning("the ranks cannot agree on signals, each handles its own: %s", error)
                self._store, signals = None, set()
        return signals

    def _answer(self, store: Store, batch: int, interval: int) -> tuple[set[int], int]:
        """Return the answer for a batch, that of this rank if it is the first."""
        own = json.dumps([[*self.received], batch + interval])
        signals, batch = json.loads(set_first(store, f"batch/{batch}", own))
        self.received -= {*signals}
        return {*signals}, batch


class SignalCoordinator:
    """Replacement of a Trainer's signal handling in a fit, before it registers its handlers, until `remove`."""

    def __init__(self, trainer: "Trainer", process_groups: ProcessGroupManager) -> None:
        self._trainer, self._process_groups = trainer, process_groups
        self._shared = SharedSignals(process_groups)
        connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop  # noqa: SLF001 - see above.
        self._save_and_requeue = getattr(connector, REQUEUER)
        self._advance_loop = loop.advance
        # On the instances: the classes stay as they are.
        self._replaced: list[tuple[object, str, Any]] = [
            (connector, NOTIFIER, self._receive),
            (connector, REQUEUER, self._receive),
            (loop, "advance", self._advance),
        ]
        if hasattr(loop, SYNCHRONIZER):
            self._replaced.append((loop, SYNCHRONIZER, lambda: None))
        for owner, name, method in self._replaced:
            setattr(owner, name, method)

    def remove(self) -> None:
        """Restore Lightning's methods."""
        for owner, name, _ in self._replaced:
            delattr(owner, name)

    def _receive(self, signum: int, _frame: Any) -> None:
        self._shared.received.add(signum)

    def _advance(self, *args: Any) -> None:
        """Fetch and train a batch, unless the ranks stop before it: a loader counts what is fetched.

        After the last one of an epoch, and before the validation that may follow, wait for the other ranks.
        """
        signals = self._shared.before_batch()
        for signum in signals - {signal.SIGTERM}:
            self._save_and_requeue(signum, None)
        if signal.SIGTERM in signals:
            rank_zero_info(f"Received SIGTERM: all ranks stop after step {self._trainer.global_step}")
            self._trainer._signal_connector.received_sigterm = True  # noqa: SLF001 - read by `Trainer.received_sigterm`.
            raise SIGTERMException
        loop = self._trainer.fit_loop.epoch_loop
        try:
            self._advance_loop(*args)
        except StopIteration:
            # The rest of the epoch is skipped, or a step that takes batches itself found none.
            self._process_groups.end_epoch()
            raise
        if loop.done:
            self._process_groups.end_epoch()
