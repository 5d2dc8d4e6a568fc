"""Terminal summary of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import align, format_bytes, format_int, format_range, show_location
from hpu_sim.prediction.recording import PREDICTED
from hpu_sim.report.findings import findings, limitations
from hpu_sim.report.source_lines import rank_labels

if TYPE_CHECKING:
    from hpu_sim.report.findings import Finding
    from hpu_sim.report.schema import RankRecord, Report
    from hpu_sim.report.source_lines import SourceLine

# Lines below this share of the predicted step are not shown.
_MIN_SHARE: Final = 0.01

# Waiting for batches below this share is not shown.
_MIN_LOADING: Final = 0.1

#: Maximum number of findings, and of lines per finding.
MAX_FINDINGS: Final = 5
MAX_LINES: Final = 3

_COLUMNS: Final = (
    "rank",
    "steps",
    "graphs",
    "recompiled",
    "host syncs",
    "H2D copies",
    "D2H copies",
    "collectives",
    "peak memory",
)


def render(report: Report) -> str:
    """Return the table of ranks, followed by the most severe findings."""
    if not report.ranks:
        return "hpu-sim: no process used a simulated card\n"
    machine = report.ranks[0].machine
    mode = "lazy" if machine.lazy else "eager"
    mode += " mode, strict" if machine.strict else " mode"
    title = f"hpu-sim: {machine.devices} x {machine.generation}, SynapseAI {machine.release}, {mode} (simulated)"
    rows = [(label, *_row(record)) for label, record in zip(rank_labels(report), report.ranks, strict=True)]
    parts = [title, *align([_COLUMNS, *rows], str.rjust)]
    parts += _compiled_graphs(report)
    parts += _clock(report)
    for finding in findings(report)[:MAX_FINDINGS]:
        parts += _format_finding(finding)
    parts += [f"  note: {limitation}" for limitation in limitations(report)]
    parts += _leniences(report)
    parts += [f"  {line}" for line in loader_lines(report)]
    return "\n".join(parts) + "\n"


def _compiled_graphs(report: Report) -> list[str]:
    """Return a line on what torch.compile did on the first rank."""
    sites = [site for site in report.ranks[0].sites if site.kind == "compiled_graph"]
    if not sites:
        return []
    count = sum(site.count for site in sites)
    last_step = max(site.last_step for site in sites)
    return [f"  torch.compile: {format_int(count)} graph{'' if count == 1 else 's'}, the last in step {last_step}"]


def _leniences(report: Report) -> list[str]:
    """Return a line that counts what strict mode refuses or changes."""
    total: dict[str, int] = {}
    for record in report.ranks:
        for name, count in record.leniences.items():
            total[name] = total.get(name, 0) + count
    shown = ", ".join(f"{format_int(count)} {name}" for name, count in total.items())
    return [f"  --strict would refuse or change: {shown}"] if shown else []


def loader_lines(report: Report) -> list[str]:
    """Return lines on loading batches, of the rank that waits longest, where it takes a part worth mentioning."""
    shares = [record.loader for record in report.ranks if record.loader is not None and record.loader.seconds]
    if not shares:
        return []
    share = max(shares, key=lambda each: each.torch_seconds / each.seconds)
    waited, lines = share.torch_seconds / share.seconds, []
    if waited >= _MIN_LOADING:
        lines.append(f"loading batches: {waited:.0%} of the time between the first and the last step, on this host")
    if share.media_images and share.media_seconds:
        lines.append(
            f"decoding on the card (simulated): {format_int(share.media_images)} images, "
            f"{share.media_seconds / share.seconds:.0%} of that time at {share.media_images / share.media_seconds:.0f} "
            "images/s of this host; a card decodes beside the step"
        )
    return lines


def _clock(report: Report) -> list[str]:
    """Return the slowest rank's predicted step, what the device waits for, and its lines with most time."""
    clocks = [(record.clock, record) for record in report.ranks if record.clock is not None]
    if not clocks:
        return []
    clock, record = max(clocks, key=lambda pair: pair[0].slow_seconds)
    seconds = format_range(clock.fast_seconds, clock.slow_seconds)
    title = f"  step {clock.step} on {record.machine.generation}: {seconds} ({PREDICTED})"
    parts = [("the card waits for the host", *clock.host_seconds), ("for collectives", *clock.exposed_seconds)]
    parts += [
        (show_location(line.location) or "no line of the program", line.fast_seconds, line.slow_seconds)
        for line in clock.lines[:MAX_LINES]
    ]
    shown = [part for part in parts if part[2] >= _MIN_SHARE * clock.slow_seconds]
    return [title, *(f"    {name}  {format_range(fast, slow)}" for name, fast, slow in shown)]


def _row(record: RankRecord) -> tuple[str, ...]:
    totals = record.totals
    graphs = [format_int(totals[name]) if record.machine.lazy else "-" for name in ("graphs", "recompilations")]
    return (
        format_int(record.steps.finished),
        *graphs,
        format_int(totals["host_syncs"]),
        _with_bytes(totals["h2d_copies"], totals["h2d_bytes"]),
        _with_bytes(totals["d2h_copies"], totals["d2h_bytes"]),
        _with_bytes(totals["collectives"], totals["collective_bytes"]),
        f"{format_bytes(totals['peak_bytes'])} of {format_bytes(record.machine.memory_bytes)}",
    )


def _with_bytes(count: int, size: int) -> str:
    return f"{format_int(count)} ({format_bytes(size)})" if count else "0"


def _format_finding(finding: Finding) -> list[str]:
    shown = [f"  {finding.category}: {finding.title}"]
    shown += [f"    {_location(line)}  {line.frequency}: {line.description}" for line in finding.lines[:MAX_LINES]]
    if len(finding.lines) > MAX_LINES:
        shown.append(f"    and {len(finding.lines) - MAX_LINES} more lines")
    if not finding.lines:
        shown.append(f"    {finding.recommendation}")
    return shown


def _location(line: SourceLine) -> str:
    frame = line.site.frame
    if frame is None:
        return "no Python line"
    cause = f" ({line.site.cause})" if line.site.cause else ""
    return show_location(f"{frame.file}:{frame.line}") + cause
