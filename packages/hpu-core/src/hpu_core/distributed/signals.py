"""Signals: all ranks of a Trainer handle SIGTERM, and SLURM's for a requeue, before the same batch.

From 2.5.5 on, Lightning's loop broadcasts and reads rank 0's answer to SIGTERM before each batch: a copy, a collective
and a host-device synchronization in every step of every rank. In earlier loops, and in all that validate or test, each
rank acts on its own signal, and one may stop a batch before the others. The handler for a requeue saves a checkpoint
wherever the signal finds a rank, which may be in another collective than the others. Here the watchdogs agree, once one
of them received the signal.
"""

import math
import signal
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from hpu_core._lightning import SIGTERMException, rank_zero_info
from hpu_core.distributed.watchdog import Watchdog

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# The methods of Lightning's that have no public seam; tests compare them with every Lightning.
NOTIFIER = "_sigterm_notifier_fn"
REQUEUER = "_slurm_sigusr_handler_fn"
SYNCHRONIZER = "_broadcast_sigterm_tensor"


class SignalCoordinator:
    """Replacement of a Trainer's signal handling, before it registers its handlers, until `remove` is called."""

    def __init__(self, trainer: "Trainer", watchdog: Watchdog) -> None:
        self._trainer = trainer
        self._watchdog = watchdog
        self._has_passed_on = False
        connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop  # noqa: SLF001 - see above.
        self._save_and_requeue = getattr(connector, REQUEUER)
        self._advance_loop = loop.advance
        # On the instances: the classes stay as they are.
        self._replaced: list[tuple[object, str, Any]] = [
            (connector, NOTIFIER, self._notify),
            (connector, REQUEUER, self._share_signal),
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

    def before_evaluation_batch(self, batches: Iterable[float]) -> None:
        """Handle the signals that all ranks handle before a batch of an evaluation, which has `batches` by loader."""
        # Some ranks may have no batch, and wait for the others after the evaluation.
        may_differ = self._trainer.lightning_module.allow_zero_length_dataloader_with_multiple_devices
        self._handle(self._watchdog.signals_before_batch(math.inf if may_differ else sum(batches)))

    def _advance(self, *args: Any) -> None:
        """Fetch and train a batch, unless the ranks stop before it: a loader counts what is fetched.

        After the last one of an epoch, and before the validation that may follow, wait for the other ranks.
        """
        self._handle(self._watchdog.signals_before_batch())
        loop = self._trainer.fit_loop.epoch_loop
        try:
            self._advance_loop(*args)
        except StopIteration:
            # The rest of the epoch is skipped, or a step that takes batches itself found none.
            self._watchdog.end_epoch(loop.batch_progress.current.ready)
            raise
        if loop.done:
            self._watchdog.end_epoch(loop.batch_progress.current.ready)

    def _handle(self, signals: Collection[int]) -> None:
        for signum in {*signals} - {signal.SIGTERM}:
            self._save_and_requeue(signum, None)
        if signal.SIGTERM in signals:
            rank_zero_info(f"Received SIGTERM: all ranks stop after step {self._trainer.global_step}")
            self._trainer._signal_connector.received_sigterm = True  # noqa: SLF001 - read by `Trainer.received_sigterm`.
            raise SIGTERMException

    def _notify(self, signum: Any, frame: Any) -> None:
        launcher = self._trainer.strategy.launcher
        # Once: the launched ranks pass it back.
        if launcher is not None and not self._has_passed_on:
            self._has_passed_on = True
            launcher.kill(signum)
        self._share_signal(signum, frame)

    def _share_signal(self, signum: Any, frame: Any) -> None:  # noqa: ARG002 - the arguments of a signal handler.
        self._watchdog.notify_signal(signum)
