"""What a user should mend, drawn from the records. What is said of a card is what its vendor documents or publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hpu_sim.report.source_lines import SourceLine, source_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpu_sim.report.schema import RankRecord, Report

Category = Literal["fails", "slow", "differs"]

#: Steps in which new graphs are no surprise: in the first one everything is new, in the second one gradients and
#: optimizer states are there already, and a graph may close elsewhere in the third.
WARM_UP_STEPS: Final = 3
#: Compilations at one line that are more than a rare case.
_MIN_RECURRING: Final = 2
#: Share of a card's memory above which a peak is worth a word.
_MEMORY_THRESHOLD: Final = 0.9

# Reductions, and the dtypes that HCCL reduces without converting.
_REDUCTIONS: Final = frozenset({"allreduce", "allreduce_coalesced", "reduce", "reduce_scatter"})
_INTEGER_REDUCTIONS: Final = frozenset({"reduce_scatter_base", "reduce_scatter_tensor_coalesced"})
_REDUCED: Final = frozenset({"float32", "bfloat16"})
_ALSO_REDUCED: Final = frozenset({"int32", "int64"})


@dataclass(frozen=True)
class Finding:
    """Something to mend.

    Attributes:
        severity: "fails": a card refuses it. "slow": it holds up a card. "differs": a card computes something else.
        title: What it is, in a few words.
        advice: What a card does, and what to do about it.
        lines: Where it happens, the most frequent first; empty where it is about the run as a whole.
    """

    category: Category
    title: str
    recommendation: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True)
class _Rule:
    category: Category
    title: str
    recommendation: str
    applies: Callable[[SourceLine], bool]


def _is_sync_in_loop(line: SourceLine) -> bool:
    return line.kind == "host_sync" and line.is_in_loop


def _is_recurring_compilation(line: SourceLine) -> bool:
    # Once is an evaluation's first batch, or an epoch's short last one.
    return (
        line.kind == "compilation"
        and line.last_step > WARM_UP_STEPS
        and line.count_per_rank - line.in_first_step >= _MIN_RECURRING
    )


def _is_converted_reduction(line: SourceLine) -> bool:
    native = _REDUCED | (_ALSO_REDUCED if line.op in _INTEGER_REDUCTIONS else frozenset())
    return line.kind == "collective" and line.op in _REDUCTIONS | _INTEGER_REDUCTIONS and line.variant not in native


_RULES: Final = (
    _Rule(
        "fails",
        "The card refused this",
        "It raised an error, in the words that stand with the line, whether the program caught it or not.",
        lambda line: line.kind == "refused",
    ),
    _Rule(
        "fails",
        "A card has no complex numbers",
        "Operators that make them run here so that one run tells of all of them. Compute with real and imaginary parts "
        "apart, or on the host.",
        lambda line: line.kind == "dtype" and line.variant == "complex",
    ),
    _Rule(
        "slow",
        "The host waits for the card in every step",
        "Reading a value, copying to the host, a branch on a tensor and shapes that depend on data stop the host until "
        "the card has finished, and end the graph in lazy mode. Keep values on the card and read them every so many "
        "steps.",
        _is_sync_in_loop,
    ),
    _Rule(
        "slow",
        "New shapes keep compiling graphs",
        "A card compiles a graph anew for each combination of shapes. Pad batches to a few fixed lengths and use "
        "`drop_last=True`.",
        lambda line: _is_recurring_compilation(line) and line.variant == "shapes",
    ),
    _Rule(
        "slow",
        "New sequences of operators keep compiling graphs",
        "After the first steps the program still took a path it had not taken before, or closed a graph at another "
        "place. Rare paths, such as an evaluation, cost a compilation each; paths that vary cost one again and again.",
        lambda line: _is_recurring_compilation(line) and line.variant != "shapes",
    ),
    _Rule(
        "slow",
        "Reductions of a dtype that HCCL has to convert",
        "HCCL reduces float32 and bfloat16. Others are converted to float32 and back, for which the host waits: "
        "integers beyond 2**24 and float64 lose digits. Convert them yourself, or reduce on the host where exact "
        "integers are needed.",
        _is_converted_reduction,
    ),
    _Rule(
        "differs",
        "float64 is computed as float32",
        "The device takes float64 tensors and computes in float32; the simulator computes in float64. Use float32, or "
        "do this on the host.",
        lambda line: line.kind == "dtype" and line.variant == "float64",
    ),
)


def findings(report: Report) -> tuple[Finding, ...]:
    """Return what is to be mended, the worst first."""
    lines = source_lines(report)
    by_rule = [(rule, tuple(line for line in lines if rule.applies(line))) for rule in _RULES]
    found = [
        Finding(rule.category, rule.title, rule.recommendation, matching) for rule, matching in by_rule if matching
    ]
    return (*_killed_ranks(report), *_uncaught_errors(report), *_high_memory(report), *found)


def _killed_ranks(report: Report) -> Iterable[Finding]:
    killed = [record.rank for record in report.ranks if record.state == "running"]
    if killed:
        yield Finding(
            "fails",
            f"{_names(killed)} did not end, but {'was' if len(killed) == 1 else 'were'} killed",
            "What is shown here is what was known up to a few seconds before.",
            (),
        )


def _uncaught_errors(report: Report) -> Iterable[Finding]:
    for record in report.ranks:
        uncaught_error = record.uncaught_error
        if uncaught_error is not None and uncaught_error.error != "KeyboardInterrupt":
            place = (
                "" if uncaught_error.frame is None else f" at {uncaught_error.frame.file}:{uncaught_error.frame.line}"
            )
            title = f"Rank {record.rank} ended with {uncaught_error.error}"
            yield Finding("fails", title, f"{uncaught_error.message}{place}", ())


def _high_memory(report: Report) -> Iterable[Finding]:
    full = [rank for rank in report.ranks if rank.totals["peak_bytes"] > _MEMORY_THRESHOLD * rank.machine.memory_bytes]
    if full:
        names = ", ".join(str(record.rank) for record in full)
        yield Finding(
            "fails",
            f"More than {_MEMORY_THRESHOLD:.0%} of a card's memory was in use",
            f"On ranks {names}. A card also needs workspace for its graphs, which the simulator does not count. Use "
            "smaller batches, activation checkpointing or ZeRO.",
            (),
        )


def limitations(report: Report) -> tuple[str, ...]:
    """Return what the report does not know, a sentence each."""
    found = []
    if report.missing_ranks:
        ranks = _names(report.missing_ranks)
        found.append(f"{ranks} left no record: killed before the first use of a card, or run on another machine.")
    for record in report.ranks:
        if record.recording_error is not None:
            found.append(f"Rank {record.rank} stopped recording: {record.recording_error}.")
        if record.dropped_events:
            found.append(f"Rank {record.rank} had {record.dropped_events} events at more lines than are told apart.")
    if any(record.detail == "lines" and not record.machine.lazy for record in report.ranks):
        found.append(
            "Eager mode has no graphs, so changing shapes were not watched. PT_HPU_LAZY_MODE=1 shows them, also for "
            "programs that will run in eager mode."
        )
    if any(_has_int64_in_lazy_mode(record) for record in report.ranks):
        found.append(
            "int64 tensors went to the card, which in lazy mode stores them as int32 by default: values from 2**31 on "
            "differ."
        )
    return tuple(found)


def _names(ranks: Iterable[int]) -> str:
    names = [str(rank) for rank in ranks]
    return f"Rank {names[0]}" if len(names) == 1 else f"Ranks {', '.join(names)}"


def _has_int64_in_lazy_mode(record: RankRecord) -> bool:
    return record.machine.lazy and any(site.kind == "dtype" and site.variant == "int64" for site in record.sites)
