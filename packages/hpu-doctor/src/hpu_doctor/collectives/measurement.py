"""Measurement of the collectives on one rank: time and values."""

import functools
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import bridge, collectives
from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.machine import read_boot_id

ALL_REDUCE: Final = "all-reduce"
ALL_GATHER: Final = "all-gather"
REDUCE_SCATTER: Final = "reduce-scatter"
LINKS: Final = "send and receive"

# The fastest of several, because other processes of a machine disturb single ones.
_REPEATS: Final = 5
# Values repeat after so many elements and ranks. Sums over 30,000 ranks stay below 2**24, up to which float32 is exact.
_PERIOD: Final = 251


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What a rank reports; its measurements are those of a rank that has finished.

    Attributes:
        rank: The rank.
        host: Host name of its machine.
        boot_id: The kernel's id of this boot, by which machines of one host name differ.
        error: The error that ended it.
        phases: Names of the collectives that it has entered, in order.
        is_finished: Whether it has measured all of them.
        local_seconds: Time of a computation without communication.
        seconds: Time of each collective, by name.
        wrong: Names of the collectives with wrong values.
        wrong_sources: Ranks whose part of an all-gather was wrong here.
        link_seconds: Time to receive from each other rank.
        wrong_links: Ranks from which wrong values were received.
    """

    rank: int
    host: str = ""
    boot_id: str = ""
    error: str | None = None
    phases: Sequence[str] = ()
    is_finished: bool = False
    local_seconds: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    wrong_sources: Sequence[int] = ()
    link_seconds: Mapping[int, float] = field(default_factory=dict)
    wrong_links: Sequence[int] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RankReport":
        """Return the report that `dataclasses.asdict` and JSON have made plain data of."""
        links = {int(rank): seconds for rank, seconds in values["link_seconds"].items()}
        return cls(**{**values, "link_seconds": links})


class HCCLGroup:
    """Collectives of torch's default process group."""

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum a tensor over all ranks, in place."""
        dist.all_reduce(tensor)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        """Write the tensors of all ranks to `output`."""
        dist.all_gather(list(output.chunk(dist.get_world_size())), tensor)

    def reduce_scatter(self, output: Tensor, tensor: Tensor) -> None:
        """Write this rank's part of the sum over all ranks to `output`."""
        dist.reduce_scatter(output, list(tensor.chunk(dist.get_world_size())))

    def shift(self, output: Tensor, tensor: Tensor, distance: int) -> None:
        """Send a tensor to the rank `distance` after this one, and receive one from the rank as far before it."""
        rank, size = dist.get_rank(), dist.get_world_size()
        operations = [
            dist.P2POp(dist.isend, tensor, (rank + distance) % size),
            dist.P2POp(dist.irecv, output, (rank - distance) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()


def measure(env: LauncherEnv, group: HCCLGroup, size: int, enter: Callable[[str], object]) -> RankReport:
    """Run the collectives on this rank, and compare their values.

    Args:
        env: Rank of this process.
        group: Collectives of the job.
        size: Number of float32 elements that each rank contributes, a multiple of the world size.
        enter: Called with the name of each collective before it starts.
    """
    pattern = (torch.arange(size) % _PERIOD).to(torch.float32)
    ranks = range(env.world_size)
    total = pattern * env.world_size + sum(rank % _PERIOD for rank in ranks)

    def expected(rank: int) -> Tensor:
        return pattern + rank % _PERIOD

    own = expected(env.rank).to("hpu")

    def timed(phase: str, collective: Callable[[], object]) -> float:
        enter(phase)
        return _min_seconds(collective)

    reduced, gathered = torch.empty_like(own), own.new_empty(size * env.world_size)
    part = own.new_empty(size // env.world_size)
    local_seconds = timed("barrier", lambda: own.mul(2))
    seconds = {
        ALL_REDUCE: timed(ALL_REDUCE, lambda: group.all_reduce(reduced.copy_(own))),
        ALL_GATHER: timed(ALL_GATHER, lambda: group.all_gather(gathered, own)),
        REDUCE_SCATTER: timed(REDUCE_SCATTER, lambda: group.reduce_scatter(part, own)),
    }
    # One part at a time: those of 1,024 ranks are 16 GiB, on each of the ranks of a machine.
    parts = gathered.view(env.world_size, size)
    wrong_sources = tuple(rank for rank in ranks if not torch.equal(parts[rank].cpu(), expected(rank)))
    is_wrong = {
        ALL_REDUCE: not torch.equal(reduced.cpu(), total),
        ALL_GATHER: bool(wrong_sources),
        REDUCE_SCATTER: not torch.equal(part.cpu(), total.view(env.world_size, -1)[env.rank]),
    }
    link_seconds, wrong_links = {}, []
    received = torch.empty_like(own)
    for distance in range(1, env.world_size):
        source = (env.rank - distance) % env.world_size
        shift = functools.partial(group.shift, received, own, distance)
        link_seconds[source] = timed(f"{LINKS} at distance {distance}", shift)
        if not torch.equal(received.cpu(), expected(source)):
            wrong_links.append(source)
    return RankReport(
        rank=env.rank,
        is_finished=True,
        host=socket.gethostname(),
        boot_id=read_boot_id(),
        local_seconds=local_seconds,
        seconds=seconds,
        wrong=tuple(name for name, wrong in is_wrong.items() if wrong),
        wrong_sources=wrong_sources,
        link_seconds=link_seconds,
        wrong_links=tuple(wrong_links),
    )


def _min_seconds(function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        collectives.barrier()
        start = time.perf_counter()
        function()
        bridge.synchronize()
        seconds.append(time.perf_counter() - start)
    # A tenth of a microsecond: a report of 1,024 ranks has a million times.
    return round(min(seconds), 7)
