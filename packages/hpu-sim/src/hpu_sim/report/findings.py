"""Findings: rules that turn the records of a run into problems and recommendations.

An operation that fails is an error, one that slows the device down is of performance, and one with other results of
numerics. Every statement about hardware is from Intel's documentation or published sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from hpu_sim.common.document import Finding
from hpu_sim.prediction import hardware
from hpu_sim.report.source_lines import source_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpu_sim.report.schema import Report
    from hpu_sim.report.source_lines import SourceLine

#: Steps in which recipe cache misses are expected. Everything is new in the first step, gradients and optimizer states
#: exist from the second step on, and graph boundaries may still move in the third.
WARM_UP_STEPS: Final = 3
#: Minimum number of recipe cache misses after warm-up for a finding.
_MIN_REPEATED: Final = 2

# Reductions, and the dtypes that HCCL reduces without conversion.
_REDUCTIONS: Final = frozenset({"allreduce", "allreduce_coalesced", "reduce", "reduce_scatter"})
_INTEGER_REDUCTIONS: Final = frozenset({"reduce_scatter_base", "reduce_scatter_tensor_coalesced"})
_NATIVE_DTYPES: Final = frozenset({"float32", "bfloat16"})
_NATIVE_INTEGER_DTYPES: Final = frozenset({"int32", "int64"})


class _Rule(NamedTuple):
    category: Literal["error", "performance", "numerics"]
    title: str
    text: str
    applies: Callable[[SourceLine], bool]


def _is_repeated_compilation(line: SourceLine) -> bool:
    # A single miss after warm-up is usually the first validation batch or the short last batch of an epoch.
    return (
        line.site.kind == "compilation"
        and line.last_step > WARM_UP_STEPS
        and line.site.count - line.site.in_first_step >= _MIN_REPEATED
    )


def _is_converted_reduction(line: SourceLine) -> bool:
    op = line.site.op
    native = _NATIVE_DTYPES | (_NATIVE_INTEGER_DTYPES if op in _INTEGER_REDUCTIONS else frozenset())
    is_reduction = line.site.kind == "collective" and op in _REDUCTIONS | _INTEGER_REDUCTIONS
    return is_reduction and line.site.variant not in native


_RULES: Final = (
    _Rule(
        "error",
        "Unsupported operation",
        "The device raised the error shown with each line. The program may have caught it.",
        lambda line: line.site.kind == "unsupported",
    ),
    _Rule(
        "error",
        "Error that a card raises later",
        "The lines launched the operators that failed. The eager pipeline of a card raises such an error up to three "
        "operators later, or where the host waits, and does not say which operator it was.",
        lambda line: line.site.kind == "late_error",
    ),
    _Rule(
        "error",
        "Complex dtype",
        "A card has no complex dtypes. The simulator computes these operators, so that one run reports all of them. "
        "Compute real and imaginary parts separately, or compute on the CPU.",
        lambda line: line.site.kind == "dtype" and line.site.variant == "complex",
    ),
    _Rule(
        "performance",
        "Host-device synchronization in every step",
        "Reading a value, copying to the host, branching on a tensor and data-dependent shapes block the host until "
        "the card is idle. In lazy mode they also end the graph. Keep values on the card and read them every N steps.",
        lambda line: line.site.kind == "host_sync" and line.occurrence == "every step",
    ),
    _Rule(
        "performance",
        "Operators that a card runs on the CPU",
        "The bridge 1.19 has no kernel for these operators: the host waits for the card, and tensors are copied both "
        "ways. PT_HPU_PLACE_ON_CPU=none refuses them. Use other operators, or compute on the CPU outside of the step.",
        lambda line: line.site.kind == "cpu_fallback",
    ),
    _Rule(
        "performance",
        "Operators that torch.compile leaves to eager mode",
        "hpu_backend compiles a graph of its own before and after each of these operators. Each line names the "
        "operator and where the program calls it. PT_HPU_USE_EAGER_FALLBACK=0 refuses them.",
        lambda line: line.site.kind == "graph_break",
    ),
    _Rule(
        "performance",
        "Graph breaks of torch.compile",
        "torch.compile traces no further at these lines, and a card runs a graph before and after each. "
        "`fullgraph=True` makes a break an error.",
        lambda line: line.site.kind == "trace_break",
    ),
    _Rule(
        "performance",
        "Recipe cache misses from dynamic shapes",
        "A card compiles one recipe per combination of input shapes. Pad batches to a few bucket sizes and use "
        "drop_last=True. Replace boolean indexing, unique and nonzero by a multiplication with a mask. "
        "packages/hpu-sim/docs/report.md has the ways in full.",
        lambda line: _is_repeated_compilation(line) and line.site.variant == "shapes",
    ),
    _Rule(
        "performance",
        "Recipe cache misses from changing graphs",
        "After warm-up, graphs still had new operators, arguments, strides or boundaries. A rare path, such as "
        "validation, costs one compilation. A path that varies costs one each time.",
        lambda line: _is_repeated_compilation(line) and line.site.variant != "shapes",
    ),
    _Rule(
        "performance",
        "Dtype conversion in HCCL reductions",
        "HCCL reduces float32 and bfloat16. Other dtypes are converted to float32 and back, with a host-device "
        "synchronization. Integers above 2**24 and float64 lose precision. Convert them before the collective, or "
        "reduce on the CPU if integers must be exact.",
        _is_converted_reduction,
    ),
    _Rule(
        "numerics",
        "float64 computed as float32",
        "A card accepts float64 tensors and computes in float32. The simulator computes in float64. Use float32, or "
        "compute on the CPU.",
        lambda line: line.site.kind == "dtype" and line.site.variant == "float64",
    ),
)


def findings(report: Report) -> tuple[Finding, ...]:
    """Return the findings of a report, most severe first."""
    lines = source_lines(report)
    by_rule = [(rule, [line.entry for line in lines if rule.applies(line)]) for rule in _RULES]
    found = [Finding(rule.category, rule.title, rule.text, entries) for rule, entries in by_rule if entries]
    return (*_killed_ranks(report), *_high_memory(report), *found)


def summaries(report: Report) -> list[dict[str, Any]]:
    """Return the findings of a report as its files list them, with lines such as ``train.py:12: every step: ...``."""
    return [
        {
            "category": each.category,
            "title": each.title,
            "recommendation": each.text,
            "lines": [f"{entry.place}: {entry.often}: {entry.what}" for entry in each.entries],
        }
        for each in findings(report)
    ]


def _killed_ranks(report: Report) -> Iterable[Finding]:
    ranks = [record.rank for record in report.ranks if record.state == "running"]
    if ranks:
        title = f"{_format_ranks(ranks)} {'was' if len(set(ranks)) == 1 else 'were'} killed"
        yield Finding("error", title, "The report shows the state up to a few seconds earlier.")


def _high_memory(report: Report) -> Iterable[Finding]:
    results = {}
    for record in report.ranks:
        usable = hardware.usable_memory(record.machine.generation, record.machine.memory_bytes)
        results[record.rank] = hardware.verdict(record.totals["peak_bytes"], usable)
    for verdict, title in (("no", "Peak memory does not fit on a card"), ("tight", "Peak memory is tight")):
        ranks = [rank for rank, found in results.items() if found == verdict]
        if ranks:
            yield Finding(
                "error",
                title,
                f"{_format_ranks(ranks)}. Workspaces of recipes and fragments need memory as well, "
                "which the simulator does not count. Reduce the batch size, or use activation checkpointing or ZeRO.",
            )


def limitations(report: Report) -> tuple[str, ...]:
    """Return what the report cannot show, one or two sentences each."""
    found = []
    if report.missing_ranks:
        ranks = _format_ranks(report.missing_ranks)
        found.append(f"{ranks} left no record: killed before the first use of a card, or run on another machine.")
    for record in report.ranks:
        if record.recording_error is not None:
            found.append(f"Rank {record.rank} stopped recording: {record.recording_error}.")
        if record.dropped_events:
            found.append(f"Rank {record.rank} had {record.dropped_events} events beyond the limit of recorded lines.")
    if any(not record.machine.lazy for record in report.ranks):
        found.append(
            "Eager mode has no graphs, so recipe cache misses are unknown. Set PT_HPU_LAZY_MODE=1 to find dynamic "
            "shapes, also in programs for eager mode."
        )
    return tuple(found)


def _format_ranks(ranks: Iterable[int]) -> str:
    # Processes of a rank that started one after the other have its number.
    names = [str(rank) for rank in sorted(set(ranks))]
    return f"Rank {names[0]}" if len(names) == 1 else f"Ranks {', '.join(names)}"
