"""Check of the collectives between the ranks of a job: `measure` on each rank, `diagnose` on rank 0. It opens devices."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from hpu_core.info._job import Job, format_ranks

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA: Final = 1

ALL_REDUCE: Final = "all-reduce"
ALL_GATHER: Final = "all-gather"
REDUCE_SCATTER: Final = "reduce-scatter"
LINKS: Final = "send and receive"

# The fastest of several, because other processes of a machine disturb single ones.
_REPEATS: Final = 5
# Values repeat after so many elements. Sums over 65,000 ranks stay below 2**24, which float32 holds exactly.
_PERIOD: Final = 251


class Communicator(Protocol):
    """Collectives of the ranks on tensors of the device."""

    def all_reduce(self, tensor: "Tensor") -> None:
        """Sum a tensor over all ranks, in place."""

    def all_gather(self, output: "Tensor", tensor: "Tensor") -> None:
        """Write the tensors of all ranks to `output`."""

    def reduce_scatter(self, output: "Tensor", tensor: "Tensor") -> None:
        """Write this rank's part of the sum over all ranks to `output`."""

    def shift(self, output: "Tensor", tensor: "Tensor", distance: int) -> None:
        """Send a tensor to the rank `distance` after this one, and receive one from the rank as far before it."""

    def barrier(self) -> None:
        """Wait until all ranks are here and their devices are idle."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """Measurements of one rank.

    Attributes:
        rank: The rank.
        host: Its machine.
        local_seconds: Time of a computation without communication.
        seconds: Time of each collective, by name.
        wrong: Names of the collectives with wrong values.
        wrong_sources: Ranks whose part of an all-gather was wrong here.
        link_seconds: Time to receive from each other rank.
        wrong_links: Ranks from which wrong values were received.
    """

    rank: int
    host: str
    local_seconds: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    wrong_sources: tuple[int, ...] = ()
    link_seconds: Mapping[int, float] = field(default_factory=dict)
    wrong_links: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RankResult":
        """Return the result that `dataclasses.asdict` and JSON have made plain data of."""
        links = {int(rank): seconds for rank, seconds in values["link_seconds"].items()}
        return cls(**{**values, "link_seconds": links})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault.

    Attributes:
        kind: "wrong", "slow" or "missing".
        ranks: The rank at fault, or both ranks of a link, the sending one first.
        message: One sentence.
    """

    kind: str
    ranks: tuple[int, ...]
    message: str


def measure(
    job: Job,
    communicator: Communicator,
    size: int,
    *,
    device: str = "hpu",
    clock: Callable[[], float] = time.perf_counter,
    enter: Callable[[str], None] = lambda phase: None,
) -> RankResult:
    """Run the collectives on this rank, and compare their values.

    Args:
        job: The job.
        communicator: Its collectives.
        size: Number of float32 elements that each rank contributes, a multiple of the world size.
        device: Device of the tensors.
        clock: Clock in seconds.
        enter: Called with the name of each collective before it starts.
    """
    import torch

    pattern = (torch.arange(size) % _PERIOD).to(torch.float32)
    ranks = range(job.world_size)
    own = (pattern + job.rank).to(device)
    total = pattern * job.world_size + sum(ranks)
    seconds: dict[str, float] = {}

    def timed(phase: str, collective: Callable[[], None]) -> None:
        enter(phase)
        seconds[phase] = _fastest(communicator, collective, clock)

    reduced, gathered = torch.empty_like(own), own.new_empty(size * job.world_size)
    part = own.new_empty(size // job.world_size)
    local_seconds = _fastest(communicator, lambda: own.mul(2), clock)
    timed(ALL_REDUCE, lambda: communicator.all_reduce(reduced.copy_(own)))
    timed(ALL_GATHER, lambda: communicator.all_gather(gathered, own))
    timed(REDUCE_SCATTER, lambda: communicator.reduce_scatter(part, own))
    parts = gathered.cpu().view(job.world_size, size)
    wrong_sources = tuple(rank for rank in ranks if not torch.equal(parts[rank], pattern + rank))
    is_wrong = {
        ALL_REDUCE: not torch.equal(reduced.cpu(), total),
        ALL_GATHER: bool(wrong_sources),
        REDUCE_SCATTER: not torch.equal(part.cpu(), total.view(job.world_size, -1)[job.rank]),
    }
    link_seconds, wrong_links = {}, []
    for distance in range(1, job.world_size):
        source = (job.rank - distance) % job.world_size
        received = torch.empty_like(own)
        enter(f"{LINKS}, distance {distance}")
        link_seconds[source] = _fastest(
            communicator, lambda output=received, shift=distance: communicator.shift(output, own, shift), clock
        )
        if not torch.equal(received.cpu(), pattern + source):
            wrong_links.append(source)
    return RankResult(
        rank=job.rank,
        host=socket.gethostname(),
        local_seconds=local_seconds,
        seconds=seconds,
        wrong=tuple(name for name, wrong in is_wrong.items() if wrong),
        wrong_sources=wrong_sources,
        link_seconds=link_seconds,
        wrong_links=tuple(wrong_links),
    )


def diagnose(
    results: Sequence[RankResult | None], last_phases: Mapping[int, str] | None = None, *, slow_factor: float = 3.0
) -> tuple[Finding, ...]:
    """Return the faults that the ranks' results show, wrong values first.

    Args:
        results: Result of each rank; None for one that has not finished.
        last_phases: The last collective that each rank entered.
        slow_factor: How many times slower than the others a rank or link is that is reported.
    """
    present = [result for result in results if result is not None]
    missing = [rank for rank, result in enumerate(results) if result is None]
    return (
        *_missing(missing, last_phases or {}),
        *_wrong(present),
        *_slow_ranks(present, slow_factor),
        *_slow_links(present, slow_factor),
    )


def to_json(job: Job, size: int, results: Sequence[RankResult | None], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema": SCHEMA,
        "world_size": job.world_size,
        "bytes": 4 * size,
        "ok": not any(finding.kind != "slow" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
        "ranks": [None if result is None else asdict(result) for result in results],
    }


def _fastest(communicator: Communicator, function: Callable[[], object], clock: Callable[[], float]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        communicator.barrier()
        start = clock()
        function()
        communicator.synchronize()
        seconds.append(clock() - start)
    return min(seconds)


def _missing(missing: Sequence[int], last_phases: Mapping[int, str]) -> list[Finding]:
    return [
        Finding(
            kind="missing",
            ranks=(rank,),
            message=f"rank {rank} did not finish; the last collective that it entered is "
            f"{last_phases.get(rank, 'none')}",
        )
        for rank in missing
    ]


def _wrong(results: Sequence[RankResult]) -> list[Finding]:
    """Return the ranks and links with wrong values; a collective is named if no rank or link explains it."""
    bad = {(source, r.rank) for r in results for source in (*r.wrong_links, *r.wrong_sources)}
    senders = [
        r.rank
        for r in results
        if (r.rank, r.rank) in bad or (len(results) > 1 and all((r.rank, o.rank) in bad for o in results if o is not r))
    ]
    rest = {(source, rank) for source, rank in bad if source not in senders}
    findings = [
        Finding(kind="wrong", ranks=(rank,), message=f"rank {rank} sends wrong values; every other rank received some")
        for rank in senders
    ]
    findings += [
        Finding(
            kind="wrong", ranks=(source, rank), message=f"the link from rank {source} to rank {rank} changes values"
        )
        for source, rank in sorted(rest)
    ]
    for name in (ALL_REDUCE, REDUCE_SCATTER):
        ranks = tuple(r.rank for r in results if name in r.wrong)
        if ranks and not bad:
            findings.append(
                Finding(kind="wrong", ranks=ranks, message=f"{name} gives wrong values on {format_ranks(ranks)}")
            )
    return findings


def _slow_ranks(results: Sequence[RankResult], factor: float) -> list[Finding]:
    findings = []
    for result in results:
        usual = _median([other.local_seconds for other in results if other is not result])
        if usual is not None and result.local_seconds > factor * usual:
            findings.append(
                Finding(
                    kind="slow",
                    ranks=(result.rank,),
                    message=f"rank {result.rank} on {result.host} computes {result.local_seconds / usual:.1f} times as "
                    "long as the others",
                )
            )
    return findings


def _slow_links(results: Sequence[RankResult], factor: float) -> list[Finding]:
    """Return the slow links; links within a machine and between machines are compared among themselves."""
    hosts = {result.rank: result.host for result in results}
    links = {(source, r.rank): time for r in results for source, time in r.link_seconds.items() if source in hosts}
    slow: dict[tuple[int, int], float] = {}
    for (source, rank), duration in links.items():
        same_kind = [
            other
            for (s, r), other in links.items()
            if (s, r) != (source, rank) and (hosts[s] == hosts[r]) == (hosts[source] == hosts[rank])
        ]
        usual = _median(same_kind)
        if usual is not None and duration > factor * usual:
            slow[source, rank] = duration / usual
    return [
        Finding(
            kind="slow",
            ranks=(source, rank),
            message=f"the link from rank {source} to rank {rank} takes {times:.1f} times as long as the others",
        )
        for (source, rank), times in sorted(slow.items())
    ]


def _median(values: Sequence[float]) -> float | None:
    """Return the lower median, which half of the values being slow does not raise."""
    return sorted(values)[(len(values) - 1) // 2] if values else None
