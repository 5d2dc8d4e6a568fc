"""Ending a training on SIGTERM: all ranks before the same batch, and no batch waits for that to be asked.

From 2.5.5 on, Lightning's loop broadcasts rank 0's answer before each batch and reads it, which is a copy to the card,
a collective and a wait for the card in every step of every rank; its handler takes part in the broadcast, and ranks
that wait for each other elsewhere never meet there. Older ones have each rank go by its own signal, so that one may end
a batch before the others. Here the watch has the ranks agree, once somebody has been asked.
"""

from typing import TYPE_CHECKING, Any

from hpu_ddp._lightning import SIGTERMException
from hpu_ddp._watch import Watch

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

_NOTIFIER = "_sigterm_notifier_fn"
_BROADCAST = "_broadcast_sigterm_tensor"


class AgreedEnd:
    """Stands in for what a Trainer does about SIGTERM, until `remove` is called.

    Neither has another seam. Both are set on this Trainer's own objects and read as the methods that they stand for.

    Args:
        trainer: The Trainer, before it has registered its signal handlers.
        watch: How its ranks agree.
    """

    def __init__(self, trainer: "Trainer", watch: Watch) -> None:
        self._trainer = trainer
        self._watch = watch
        setattr(trainer._signal_connector, _NOTIFIER, self._notify)  # noqa: SLF001 - see above.
        loop = trainer.fit_loop.epoch_loop
        if hasattr(loop, _BROADCAST):
            setattr(loop, _BROADCAST, self._ask_nobody)

    def remove(self) -> None:
        """Leave the Trainer as it was."""
        delattr(self._trainer._signal_connector, _NOTIFIER)  # noqa: SLF001 - see above.
        loop = self._trainer.fit_loop.epoch_loop
        if hasattr(loop, _BROADCAST):
            delattr(loop, _BROADCAST)

    def look(self) -> None:
        """End the training before this batch, if the ranks have agreed to.

        Raises:
            SIGTERMException: They have.
        """
        if self._watch.pause():
            self._trainer._signal_connector.received_sigterm = True  # noqa: SLF001 - what `Trainer.received_sigterm` reads.
            raise SIGTERMException

    def _notify(self, signum: Any, frame: Any) -> None:  # noqa: ARG002 - a signal handler's arguments.
        """Pass the signal on to the processes that this one has started, and ask all ranks to end."""
        launcher = self._trainer.strategy.launcher
        if launcher is not None and not self._watch.stopping:
            launcher.kill(signum)
        self._watch.stop()

    def _ask_nobody(self) -> None:
        """Do nothing before a batch; `look` comes with the strategy's hook."""
