"""Findings: what to change in a stage, with the time that it saves, the user's line and the cure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from hpu_profiler._formatting import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpu_profiler.analysis.host_sync import SyncSite
    from hpu_profiler.analysis.host_work import Category, Owner
    from hpu_profiler.analysis.trace_analysis import TraceAnalysis

FindingKind = Literal[
    "straggler",
    "data loading",
    "host sync",
    "changing shapes",
    "compilation",
    "exposed communication",
    "callback",
    "logger",
    "user code",
    "launch bound",
    "data movement",
]
#: Smallest part of a step that is worth a finding.
_MIN_FRACTION: Final = 0.05
#: Machines that a finding about slow ranks names.
_MAX_HOSTS: Final = 4
_NO_LINES: Final = " `HPUProfiler(with_stack=True)` records the line of each call."
#: Host work that a simulated device makes slow, because it computes on the host.
_LAUNCH_CATEGORIES: Final[tuple[Category, ...]] = ("operators", "optimizer", "Lightning", "unrecorded")

_CURES: Final[dict[FindingKind, str]] = {
    "data loading": "Give the DataLoader workers (`num_workers`, `persistent_workers=True`, `prefetch_factor`), or do "
    "less work per sample.",
    "host sync": "Keep the value on the card: collect `loss.detach()` and read it every N steps, or pass the tensor to "
    "`self.log`. Avoid `.item()`, `.cpu()`, `.tolist()`, `print(loss)` and `if tensor:` in a step, and refresh the "
    "progress bar less often.",
    "changing shapes": "Keep shapes equal from step to step: pad batches to a few lengths (hpu-bucketing chooses "
    "them), and set `drop_last=True`.",
    "compilation": "If these are the first graphs of a run, record later steps. Otherwise keep shapes equal from step "
    "to step.",
    "exposed communication": "Larger gradient buckets (`bucket_cap_mb`), gradient accumulation or a larger batch per "
    "card let more collectives overlap with computation.",
    "callback": "Run the callback less often, or move its work out of the step.",
    "logger": "Log less often (`log_every_n_steps`), or use a logger that writes in the background.",
    "user code": "Move this work to the DataLoader's workers or to the card, or do it once before training.",
    "launch bound": 'Use larger batches, `torch.compile(model, backend="hpu_backend")` in eager mode, or fewer and '
    "larger operators.",
    "data movement": "Use operators that broadcast by themselves instead of `expand`, `repeat` and copies of "
    "transposed tensors, and keep the layout of a tensor between operators.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to change.

    Attributes:
        kind: Kind of the problem.
        title: The problem, in one sentence. Text between backticks is code.
        cause: What causes it; empty if the title says it.
        cure: What to do.
        saving: Time that each step gets shorter, in microseconds.
        location: The user's line as "file:line function"; empty if the trace does not show it.
        subject: Name of the callback, function or action; empty if there is none.
        sites: Calls that make the host wait, of a finding about host-device synchronizations.
        simulated: Whether the time was measured on a simulated device.
        predicted: Whether the time is predicted and not measured.
    """

    kind: FindingKind
    title: str
    cause: str
    cure: str
    saving: float
    location: str = ""
    subject: str = ""
    sites: tuple[SyncSite, ...] = ()
    simulated: bool = False
    predicted: bool = False


def find(traces: Sequence[TraceAnalysis], slow_ranks: Sequence[TraceAnalysis]) -> tuple[Finding, ...]:
    """Return the findings of a stage, largest saving first.

    Args:
        traces: Results for each trace.
        slow_ranks: Those of the ranks that the others wait for, the slowest first.
    """
    ranks = one_per_rank(traces)
    if not ranks:
        return ()
    simulated = any(trace.trace.simulated for trace in ranks)
    predicted = any(trace.trace.predicted for trace in ranks)
    found = [_straggler(slow_ranks, ranks)] if slow_ranks else []
    found += _host_work(ranks)
    if all(rank.has_device for rank in ranks):
        found += [_host_sync(ranks), _changing_shapes(ranks)]
    found.append(_compilation(ranks))
    if not simulated:
        found += [_exposed_comm(slow_ranks, ranks), _launch_bound(ranks), _data_movement(ranks)]
    kept = _without_repetitions(finding for finding in found if finding is not None)
    marked = (replace(each, simulated=simulated, predicted=predicted) for each in kept)
    return tuple(sorted(marked, key=lambda each: -each.saving))


def one_per_rank(traces: Iterable[TraceAnalysis]) -> list[TraceAnalysis]:
    """Return the trace with most steps of each rank; traces without steps are left out."""
    chosen: dict[int | None, TraceAnalysis] = {}
    for trace in traces:
        other = chosen.get(trace.trace.rank)
        if trace.steps and trace.duration and (other is None or trace.steps > other.steps):
            chosen[trace.trace.rank] = trace
    return list(chosen.values())


def _saving(ranks: Sequence[TraceAnalysis], removed: Callable[[TraceAnalysis], float]) -> float:
    """Return how much shorter a step gets if each rank does less work; the slowest rank decides the step."""
    before = max(rank.step_time_excl_comm_wait for rank in ranks)
    after = max(rank.step_time_excl_comm_wait - removed(rank) / rank.steps for rank in ranks)
    return max(before - after, 0.0)


def _is_large(saving: float, ranks: Sequence[TraceAnalysis]) -> bool:
    return saving >= _MIN_FRACTION * max(rank.step_time for rank in ranks)


def _straggler(slow_ranks: Sequence[TraceAnalysis], ranks: Sequence[TraceAnalysis]) -> Finding | None:
    slow = slow_ranks[0]
    fast = min(ranks, key=lambda each: each.step_time_excl_comm_wait)
    delay = slow.step_time_excl_comm_wait - fast.step_time_excl_comm_wait
    fast_times = {row.owner: row.time / fast.steps for row in fast.idle.host_work}
    differences: dict[Owner | None, float] = {
        row.owner: row.time / slow.steps - fast_times.get(row.owner, 0.0) for row in slow.idle.host_work
    }
    differences[None] = _device_time(slow) - _device_time(fast)
    next_time = max(each.step_time_excl_comm_wait for each in ranks if each not in slow_ranks)
    owner = max(differences, key=lambda each: differences[each])
    if slow.trace.simulated and (owner is None or owner.category in _LAUNCH_CATEGORIES):
        return None
    what = "time on the card" if owner is None else _describe(owner)
    return Finding(
        "straggler",
        f"{_name_slow_ranks(slow_ranks)}: the other ranks wait {format_time(delay)} for it in each step",
        f"The largest difference from {fast.name} is {what}: {format_time(differences[owner])} more per step.",
        "Give each rank equal work, and compare the hosts: disk, CPU, other programs."
        if owner is None or owner.category == "data loading"
        else "Do the same work on each rank, or move this work out of the step.",
        slow.step_time_excl_comm_wait - next_time,
        owner.location if owner else "",
        owner.name if owner else "",
    )


def _name_slow_ranks(slow_ranks: Sequence[TraceAnalysis]) -> str:
    slow = slow_ranks[0]
    if len(slow_ranks) == 1:
        return f"{slow.name.capitalize()} is slow"
    hosts = Counter(each.trace.host for each in slow_ranks if each.trace.host).most_common(_MAX_HOSTS)
    places = ", ".join(f"{count} on {host}" for host, count in hosts)
    return f"{len(slow_ranks)} ranks are slow{f' ({places})' if places else ''}, {slow.name} most"


def _device_time(trace: TraceAnalysis) -> float:
    return (trace.busy_time - trace.exposed_comm) / trace.steps


def _describe(owner: Owner) -> str:
    return f"{owner.category} in `{owner.name}`" if owner.name else f"{owner.category} work"


def _host_sync(ranks: Sequence[TraceAnalysis]) -> Finding | None:
    counted = max(ranks, key=lambda each: each.host_syncs.calls / each.steps)
    syncs = counted.host_syncs
    calls = syncs.calls / counted.steps
    if calls < 1:
        return None
    names = {site.name for site in syncs.sites}
    title = (
        f"`{syncs.sites[0].name}` makes the host wait for the card {_times(calls)} in each step"
        if len(names) == 1
        else f"The host waits for the card {_times(calls)} in each step"
    )
    return Finding(
        "host sync",
        title,
        "The host launches no work until the card has finished all of its queue.",
        _CURES["host sync"] + ("" if syncs.has_lines else _NO_LINES),
        _saving(ranks, lambda rank: rank.host_syncs.time),
        next((site.location for site in syncs.sites if site.location), ""),
        sites=syncs.sites,
    )


def _times(number: float) -> str:
    return "once" if round(number) == 1 else f"{number:.0f} times"


def _changing_shapes(ranks: Sequence[TraceAnalysis]) -> Finding | None:
    rank = max(ranks, key=lambda each: each.new_shapes)
    if not rank.new_shapes:
        return None
    compilation = "A card compiles a graph for each new shape"
    detail = ", which can take seconds; the simulated card does not compile." if rank.trace.simulated else "."
    return Finding(
        "changing shapes",
        f"Shapes change: {rank.new_shapes} of {rank.steps} steps have new shapes",
        compilation + detail,
        _CURES["changing shapes"],
        _saving(ranks, lambda each: each.compilations.time),
        rank.new_shapes_location,
    )


def _host_work(ranks: Sequence[TraceAnalysis]) -> list[Finding]:
    """Return the findings about work of the host during which the card is idle."""
    titles: dict[FindingKind, str] = {
        "data loading": "The card waits {time} for the DataLoader in each step",
        "callback": "The card waits {time} for the callback `{name}` in each step",
        "logger": "The card waits {time} for the logger in each step",
        "user code": "The card waits {time} for `{name}` in each step",
    }
    found = []
    for kind, title in titles.items():
        rows = [row for rank in ranks for row in rank.idle.host_work if row.owner.category == kind]
        # A DataLoader and a logger are one thing to change, callbacks and functions one each.
        names = {row.owner.name for row in rows} if kind in {"callback", "user code"} else {None}
        for name in names:
            chosen = [row for row in rows if name is None or row.owner.name == name]
            if not chosen:
                continue
            saving = _saving(ranks, lambda rank, kind=kind, name=name: _idle(rank, kind, name))  # type: ignore[misc]
            if _is_large(saving, ranks):
                row = max(chosen, key=lambda row: (bool(row.owner.location), row.idle))
                text = title.format(time=format_time(saving), name=row.owner.name)
                found.append(Finding(kind, text, "", _CURES[kind], saving, row.owner.location, row.owner.name))
    return found


def _idle(rank: TraceAnalysis, category: str, name: str | None) -> float:
    return sum(
        row.idle
        for row in rank.idle.host_work
        if row.owner.category == category and (name is None or row.owner.name == name)
    )


def _compilation(ranks: Sequence[TraceAnalysis]) -> Finding | None:
    saving = _saving(ranks, lambda rank: rank.compilations.time)
    if any(rank.new_shapes for rank in ranks) or not _is_large(saving, ranks):
        return None
    title = f"Compiling graphs takes {format_time(saving)} of each step"
    return Finding("compilation", title, "", _CURES["compilation"], saving)


def _exposed_comm(slow_ranks: Sequence[TraceAnalysis], ranks: Sequence[TraceAnalysis]) -> Finding | None:
    """Return the finding for the rank that waits least, because the others also wait for it."""
    rank = slow_ranks[0] if slow_ranks else min(ranks, key=lambda each: each.exposed_comm_per_step)
    saving = rank.exposed_comm_per_step
    if not _is_large(saving, ranks):
        return None
    longest = f"{rank.collectives[0].name} takes most of it." if rank.collectives else ""
    return Finding(
        "exposed communication",
        f"Collectives take {format_time(saving)} of each step while the card computes nothing",
        longest,
        _CURES["exposed communication"],
        saving,
    )


def _data_movement(ranks: Sequence[TraceAnalysis]) -> Finding | None:
    saving = _saving(ranks, lambda rank: sum(each.time for each in rank.moving_kernels))
    if not _is_large(saving, ranks):
        return None
    rank = max(ranks, key=lambda each: sum(kernel.time for kernel in each.moving_kernels) / each.steps)
    kernel = rank.moving_kernels[0]
    return Finding(
        "data movement",
        f"The card spends {format_time(saving)} of each step in `{kernel.name}`, which moves data and computes nothing",
        "The bridge runs `expand` as such a node where its result is stored." if "roadcast" in kernel.name else "",
        _CURES["data movement"],
        saving,
        kernel.location,
        kernel.name,
    )


def _launch_bound(ranks: Sequence[TraceAnalysis]) -> Finding | None:
    saving = _saving(ranks, _launch_time)
    if not _is_large(saving, ranks):
        return None
    title = f"The card waits {format_time(saving)} in each step because the host launches work slowly"
    return Finding("launch bound", title, "", _CURES["launch bound"], saving)


def _launch_time(rank: TraceAnalysis) -> float:
    """Return the idle time in which the host was launching work, without that after a synchronization."""
    after_syncs = max(rank.host_syncs.time - rank.idle.by_cause.get("host sync", 0.0), 0.0)
    return max(sum(rank.idle.by_cause.get(each, 0.0) for each in _LAUNCH_CATEGORIES) - after_syncs, 0.0)


def _without_repetitions(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without the work that makes a rank slow, which the straggler's finding names."""
    kept: list[Finding] = []
    for finding in findings:
        slow = {each.subject for each in kept if each.kind == "straggler"}
        if finding.kind not in {"user code", "callback"} or finding.subject not in slow:
            kept.append(finding)
    return kept
