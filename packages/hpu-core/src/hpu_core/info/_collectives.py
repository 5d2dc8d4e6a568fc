"""Check of the collectives between the ranks of a job: `measure` runs on each rank, `diagnose` on rank 0."""

import functools
import socket
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
# Values repeat after so many elements and ranks. Sums over 30,000 ranks stay below 2**24, up to which float32 is exact.
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
class RankReport:
    """What a rank reports.

    Attributes:
        result: Its measurements, None if it has not finished.
        error: The error that ended it.
        phases: Names of the collectives that it has entered, in order.
    """

    result: RankResult | None = None
    error: str | None = None
    phases: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RankReport":
        """Return the report that `dataclasses.asdict` and JSON have made plain data of."""
        result = None if values["result"] is None else RankResult.from_json(values["result"])
        return cls(result=result, error=values["error"], phases=tuple(values["phases"]))


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


def measure(  # noqa: PLR0913 - clock, device and communicator are replaced in tests.
    job: Job,
    communicator: Communicator,
    size: int,
    *,
    device: str = "hpu",
    clock: Callable[[], float] = time.perf_counter,
    enter: Callable[[str], object] | None = None,
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
    expected = [pattern + rank % _PERIOD for rank in ranks]
    total = pattern * job.world_size + sum(rank % _PERIOD for rank in ranks)
    own = expected[job.rank].to(device)

    def timed(phase: str, collective: Callable[[], object]) -> float:
        if enter is not None:
            enter(phase)
        return _fastest(communicator, collective, clock)

    reduced, gathered = torch.empty_like(own), own.new_empty(size * job.world_size)
    part = own.new_empty(size // job.world_size)
    local_seconds = timed("barrier", lambda: own.mul(2))
    seconds = {
        ALL_REDUCE: timed(ALL_REDUCE, lambda: communicator.all_reduce(reduced.copy_(own))),
        ALL_GATHER: timed(ALL_GATHER, lambda: communicator.all_gather(gathered, own)),
        REDUCE_SCATTER: timed(REDUCE_SCATTER, lambda: communicator.reduce_scatter(part, own)),
    }
    parts = gathered.cpu().view(job.world_size, size)
    wrong_sources = tuple(rank for rank in ranks if not torch.equal(parts[rank], expected[rank]))
    is_wrong = {
        ALL_REDUCE: not torch.equal(reduced.cpu(), total),
        ALL_GATHER: bool(wrong_sources),
        REDUCE_SCATTER: not torch.equal(part.cpu(), total.view(job.world_size, -1)[job.rank]),
    }
    link_seconds, wrong_links = {}, []
    received = torch.empty_like(own)
    for distance in range(1, job.world_size):
        source = (job.rank - distance) % job.world_size
        shift = functools.partial(communicator.shift, received, own, distance)
        link_seconds[source] = timed(f"{LINKS} at distance {distance}", shift)
        if not torch.equal(received.cpu(), expected[source]):
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


def diagnose(reports: Sequence[RankReport | None], *, slow_factor: float = 3.0) -> tuple[Finding, ...]:
    """Return the faults that the ranks' reports show, the slow ranks and links last.

    Args:
        reports: Report of each rank; None for one that has sent none.
        slow_factor: How many times slower than the others a rank or link is that is reported.
    """
    results = [report.result for report in reports if report is not None and report.result is not None]
    return (
        *_missing(reports),
        *_wrong(results),
        *_slow_ranks(results, slow_factor),
        *_slow_links(results, slow_factor),
    )


def to_json(job: Job, size: int, reports: Sequence[RankReport | None], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema": SCHEMA,
        "world_size": job.world_size,
        "bytes": 4 * size,
        "ok": not any(finding.kind != "slow" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
        "ranks": [None if report is None or report.result is None else asdict(report.result) for report in reports],
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


def _missing(reports: Sequence[RankReport | None]) -> list[Finding]:
    """Return the ranks that did not finish; those that only waited for others are not named."""
    findings = []
    waiting: dict[int, tuple[str, ...]] = {}
    for rank, report in enumerate(reports):
        if report is None:
            message = f"rank {rank} did not report; see its own output"
        elif report.error is not None:
            message = f"rank {rank} failed: {report.error}"
        else:
            if report.result is None:
                waiting[rank] = report.phases
            continue
        findings.append(Finding(kind="missing", ranks=(rank,), message=message))
    if waiting and not findings:
        fewest = min(map(len, waiting.values()))
        last = tuple(rank for rank, phases in waiting.items() if len(phases) == fewest)
        phase = waiting[last[0]][-1] if fewest else "initialization"
        findings.append(Finding(kind="missing", ranks=last, message=f"{format_ranks(last)} did not finish {phase}"))
    return findings


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
    findings = []
    for result in results:
        own = {link for link in links if result.rank in link}
        # With two ranks, both links are those of both ranks.
        if len(results) > 2 and own <= slow.keys():  # noqa: PLR2004 - see above.
            message = f"every link of rank {result.rank} on {result.host} is slow"
            findings.append(Finding(kind="slow", ranks=(result.rank,), message=message))
            slow = {link: times for link, times in slow.items() if link not in own}
    findings += [
        Finding(
            kind="slow",
            ranks=link,
            message=f"the link from rank {link[0]} to rank {link[1]} takes {times:.1f} times as long as the others",
        )
        for link, times in sorted(slow.items())
    ]
    return findings


def _median(values: Sequence[float]) -> float | None:
    """Return the lower median, which half of the values being slow does not raise."""
    return sorted(values)[(len(values) - 1) // 2] if values else None
