"""The ranks that this process trains with, as both kinds of strategy need them."""

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hpu_core import bridge, initialize_hccl
from hpu_ddp import _environment, _options
from hpu_ddp._lightning import ClusterEnvironment, init_dist_connection
from hpu_ddp._meeting import Meeting, Rendezvous, meet
from hpu_ddp._watch import Watch

# A process has one process group by default, whatever strategies it makes, and so one meeting.
_meeting: Meeting | None = None


class Ranks:
    """Brings this process together with the others, and apart from them again.

    Args:
        backend: The process group's; "hccl" when None.
        timeout: For how long ranks wait for each other; 30 minutes when None.

    Raises:
        TypeError: `timeout` is no timedelta.
        ValueError: `timeout` is no time to wait, or `backend` does not work on a card.
    """

    def __init__(self, backend: str | None, timeout: timedelta | None) -> None:
        self.backend = _options.checked_backend(backend)
        self.timeout = _options.checked_timeout(timeout)
        self._met: Meeting | None = None

    @property
    def watch(self) -> Watch | None:
        """By what the ranks watch each other, once they have met and if there are several."""
        return None if self._met is None else self._met.watch

    def find_place(self, cluster: ClusterEnvironment | None, devices: int, num_nodes: int) -> None:
        """Check what the environment says of this process's place; Lightning assigns the cluster a little later.

        Raises:
            ValueError: The environment is incomplete, or contradicts itself or the arguments.
        """
        bridge.clear_default_rendezvous_env()
        if cluster is not None and devices:
            _environment.check(cluster, devices, num_nodes)

    def meet(self, cluster: ClusterEnvironment | None) -> None:
        """Meet the other ranks, unless this process has met them before, and begin a training with them.

        Raises:
            RankFailedError: A rank has not come or has failed; the text names it.
            ValueError: The ranks disagree about which and how many they are.
        """
        global _meeting  # noqa: PLW0603 - as above.
        cluster = _given(cluster)
        if not dist.is_initialized():
            place = (cluster.main_address, cluster.main_port)
            _meeting = meet(Rendezvous(*place, cluster.global_rank(), cluster.world_size(), self.timeout))
        # Where the program has made the process group itself, nobody watches its ranks.
        self._met = _meeting
        if self.watch is not None:
            self.watch.begin()

    def make_process_group(self, cluster: ClusterEnvironment | None) -> None:
        """Take this process's rank and make the process group, unless there is one.

        Raises:
            RuntimeError: The program has made a process group that no card can use.
        """
        cluster = _given(cluster)
        initialize_hccl(cluster.world_size(), cluster.global_rank(), cluster.local_rank())
        if not dist.is_initialized() and self._met is not None:
            # No `device_id`, which Lightning passes from 2.5.5 on: torch wants one with an index, and a card has none.
            init_dist_connection(cluster, self.backend, timeout=self.timeout, store=self._met.store)
        elif not _options.works_on_cards(dist.get_backend()):
            raise RuntimeError(
                f"the program's own process group has the backend {dist.get_backend()!r}, with which cards cannot "
                f"exchange anything: call `init_process_group({_options.BACKEND!r})`, or leave it to the strategy"
            )

    def meeting(self, where: str, group: Any | None = None) -> AbstractContextManager[None]:
        """Count a point at which all ranks meet; those of a smaller group do not count."""
        if self.watch is None or group not in {None, dist.group.WORLD}:
            return nullcontext()
        return self.watch.meeting(where)

    def part(self) -> None:
        """Note that this rank's training is over."""
        if self.watch is not None:
            self.watch.end()

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank cannot go on."""
        if self.watch is not None:
            self.watch.fail(error)


def _given(cluster: ClusterEnvironment | None) -> ClusterEnvironment:
    if cluster is None:
        raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
    return cluster
