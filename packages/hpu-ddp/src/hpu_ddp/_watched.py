"""What the Trainer's strategy and Fabric's do alike: ranks that are watched, and how they are started."""

from contextlib import AbstractContextManager
from typing import Any, ClassVar

from hpu_core.parallel import HPUParallelMixin
from hpu_ddp._launchers import check_is_rank
from hpu_ddp._ranks import Ranks


class Watched(HPUParallelMixin):
    """Stands first among the bases of a strategy: a rank that waits for another one learns that it has failed.

    Attributes:
        multi_processing_launcher: What starts processes with multiprocessing.
    """

    multi_processing_launcher: ClassVar[type[Any]]

    cluster_environment: Any
    _ranks: Ranks
    _start_method: Any
    _launcher: Any

    def prepare_device(self) -> None:
        """Load the Gaudi bridge and choose the card of this rank.

        Raises:
            RuntimeError: This process only starts others, and must not take a card from them.
        """
        check_is_rank(self._start_method, self.cluster_environment)
        super().prepare_device()

    def meeting(self, what: str, group: Any | None = None) -> AbstractContextManager[None]:
        """Return the context in which ranks wait for each other, which ends for all if one of them fails.

        Args:
            what: What they wait in, "all-gather".
            group: The process group; all ranks when not given.
        """
        return self._ranks.meeting(what, group)

    def _configure_launcher(self) -> None:
        super()._configure_launcher()
        if self._start_method != "popen":
            self._launcher = self.multi_processing_launcher(self, start_method=self._start_method)
