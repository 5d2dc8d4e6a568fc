"""Document of a report: what a terminal and a page show of it."""

from __future__ import annotations

import dataclasses
import shlex
import signal
from collections import Counter
from typing import TYPE_CHECKING, Final

from hpu_sim.common.document import Document, Entries, Finding, Heading, Part, Table, Text
from hpu_sim.common.formatting import format_bytes, format_int
from hpu_sim.prediction import view as step_view
from hpu_sim.prediction.recording import PREDICTED
from hpu_sim.prediction.step import TRUST
from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.schema import RECORDED_STEP
from hpu_sim.report.source_lines import OCCURRENCES, rank_labels, source_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_sim.report.schema import RankRecord, Report

#: Maximum number of findings in a terminal.
MAX_FINDINGS: Final = 5
_COLUMNS: Final = (
    "rank", "steps", "graphs", "recompiled", "host syncs", "H2D copies", "D2H copies", "collectives", "peak memory",
)  # fmt: skip
# Title, kinds of events, description.
_SECTIONS: Final = (
    ("Host-device synchronization", ("host_sync",), "The host waited until the device was idle."),
    (
        "CPU fallbacks",
        ("cpu_fallback",),
        "Operators without a kernel in the bridge 1.19, which a card runs on the CPU.",
    ),
    (
        "Recipe cache misses by line",
        ("compilation",),
        "First operator of a new graph that differs from all earlier ones.",
    ),
    (
        "Graphs of torch.compile",
        ("compiled_graph",),
        "Graphs that hpu_backend compiled, by the line that called the function.",
    ),
    ("Host-device copies", ("h2d", "d2h"), "Data copied between host and device."),
    ("Collectives", ("collective",), "Calls of torch.distributed with hpu tensors."),
    ("Unsupported operations and dtypes", ("dtype", "unsupported"), "Operators that fail or convert on a card."),
)
_FOOTER: Final = (
    "Nothing in this report was measured on a card. What is said of cards is from Intel's documentation and published "
    "sources. A training step contains one optimizer step and everything since the previous step. Code after the "
    "optimizer step in the same loop iteration, such as validation, belongs to the same step. The first step includes "
    "set-up. Optimizers that each step once share a step. Each event is attributed to the innermost line of the "
    "program. If a framework caused it below that line, the callback, logger or method is shown instead of the source "
    "code. Expand a line for its stack."
)


def document(report: Report) -> Document:
    """Return the document of a report."""
    first = report.ranks[0].machine if report.ranks else None
    status = _describe_exit(report.exit_code)
    created = report.created.replace("T", " ").replace("+00:00", " UTC")
    heading = machine = ""
    if first is not None:
        mode = f"{'lazy' if first.lazy else 'eager'} mode"
        on = f"{first.devices} x {first.generation}, SynapseAI {first.release.version}, {mode}"
        heading = f"hpu-sim: {on}{', strict' if first.strict else ''} (simulated)"
        machine = f"{on}, torch {report.ranks[0].torch}"
    return Document(
        title="Gaudi readiness report",
        badge="simulated",
        command=shlex.join(report.command),
        heading=heading or "hpu-sim: no process used a simulated card",
        subtitle=" · ".join(each for each in (machine, status, created) if each),
        parts=list(_parts(report, status)),
        footer=[_FOOTER],
    )


def _parts(report: Report, status: str) -> Iterator[Part]:
    if not report.ranks:
        text = "The program created no hpu tensor."
        yield Finding("performance", "No process used a simulated card", text, is_brief=False)
        return
    ranks = list(zip(rank_labels(report), report.ranks, strict=True))
    first, lines = report.ranks[0], source_lines(report)
    found = findings(report)
    yield Table(_COLUMNS, [(label, *_row(record)) for label, record in ranks], is_left=False)
    yield from _compiled_graphs(first)
    yield from _steps(report)
    yield Heading("Findings")
    for number, each in enumerate(found):
        yield dataclasses.replace(each, is_brief=number < MAX_FINDINGS)
    if not found:
        has_failed = report.exit_code not in {0, None}
        title = f"No findings, but the program {status}" if has_failed else "No findings"
        yield Finding("performance" if has_failed else "good", title, is_brief=False)
    yield from (Text(f"note: {each}") for each in limitations(report))
    yield from _leniences(report)
    for title, kinds, text in _SECTIONS:
        chosen = [line for line in lines if line.site.kind in kinds]
        groups = [
            (name.capitalize(), [each.entry for each in chosen if each.occurrence == name]) for name in OCCURRENCES
        ]
        if chosen:
            yield Heading(title)
            yield Text(text, "faint", is_brief=False)
            yield Entries([group for group in groups if group[1]])


def _row(record: RankRecord) -> tuple[str, ...]:
    totals = record.totals
    graphs = [format_int(totals[name]) if record.machine.lazy else "-" for name in ("graphs", "recompilations")]
    with_bytes = (("h2d_copies", "h2d_bytes"), ("d2h_copies", "d2h_bytes"), ("collectives", "collective_bytes"))
    return (
        f"{format_int(record.steps)}{' (killed)' if record.state == 'running' else ''}",
        *graphs,
        format_int(totals["host_syncs"]),
        *(f"{format_int(totals[n])} ({format_bytes(totals[size])})" if totals[n] else "0" for n, size in with_bytes),
        f"{format_bytes(totals['peak_bytes'])} of {format_bytes(record.machine.memory_bytes)}",
    )


def _compiled_graphs(record: RankRecord) -> Iterator[Text]:
    """Yield a line on what torch.compile did on the first rank."""
    sites = [site for site in record.sites if site.kind == "compiled_graph"]
    if sites:
        count, last = sum(site.count for site in sites), max(site.last_step for site in sites)
        yield Text(f"torch.compile: {format_int(count)} graph{'' if count == 1 else 's'}, the last in step {last}")


def _steps(report: Report) -> Iterator[Part]:
    """Yield the slowest rank's predicted step, as a plan shows it."""
    known = [(each.predicted, each) for each in report.ranks if each.predicted is not None]
    if not known:
        return
    step, record = max(known, key=lambda pair: pair[0].seconds)
    title = f"step {RECORDED_STEP} on {record.machine.generation}, {PREDICTED}"
    yield Text(f"{title}: {step_view.time_of(step)}, {step_view.limits(step)}")
    yield Text(step_view.work(step), is_brief=False)
    yield from step_view.tables(step)
    yield from (Text(f"note: {each}") for each in (TRUST, *record.notes))


def _leniences(report: Report) -> Iterator[Text]:
    """Yield a line that counts what strict mode refuses or changes."""
    total = sum((Counter(record.leniences) for record in report.ranks), Counter[str]())
    shown = ", ".join(f"{format_int(count)} {name}" for name, count in total.items())
    if shown:
        yield Text(f"--strict would refuse or change: {shown}")


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f"exited with code {exit_code}" if exit_code >= 0 else f"terminated by {signal.Signals(-exit_code).name}"
