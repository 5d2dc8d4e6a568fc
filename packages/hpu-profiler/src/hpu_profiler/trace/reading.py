"""Files become traces: JSON of Chrome's format, plain or compressed by gzip.

A card's work looks different by who wrote it. Up to SynapseAI 1.19 the bridge adds it to what torch exported: its
processes are named "/device:HPU:0", categories are Kernel, Memcpy, Memset and Runtime, threads are engines (MME,
TPC, DMA, NIC) or logs of the host ("Synapse/..."). After that torch writes it as it does for other devices (kernel,
gpu_memcpy, gpu_memset) or under the category that it keeps for this one (hpu_op). All of them are read. Source: the
bridge's Python sources at 1.19.0 and torch's own; nothing here was read from a card.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler.trace import linking
from hpu_profiler.trace.model import Operator, Span, Trace, Work
from hpu_profiler.trace.nesting import by_thread, innermost, measure_own_time

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hpu_profiler.trace.model import Kind

Event = dict[str, Any]

#: What HPUProfiler itself writes into a trace.
OWN_KEY: Final = "hpu_profiler"

_CARD: Final = "/device:HPU:"
_LOG_LANE: Final = "Synapse/"
_WORK: Final[dict[str, Kind]] = {
    "kernel": "kernel",
    "hpu_op": "kernel",
    "memcpy": "copy",
    "gpu_memcpy": "copy",
    "memset": "memset",
    "gpu_memset": "memset",
}
_OPERATORS: Final = frozenset({"cpu_op", "operator"})
# What a program marks: torch calls it an operator in some releases and an annotation in others.
_MARKED: Final = re.compile(r"^(\[pl\]|ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## )")
_STEP: Final = re.compile(r"^ProfilerStep#\d+$")
_COLLECTIVE: Final = re.compile(
    r"hccl|nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast(_|$)", re.IGNORECASE
)
_COMPILATION: Final = re.compile(r"compil", re.IGNORECASE)


class TraceError(ValueError):
    """A file is no trace that can be read."""


def read(path: Path) -> Trace:
    """Read a trace.

    Raises:
        OSError: The file cannot be opened.
        TraceError: It is not a trace, or only the beginning of one.
    """
    content = _load(path)
    events = [each for each in content["traceEvents"] if isinstance(each, dict)]
    trace = Trace(path=path)
    _describe(trace, content)
    work = _sort_out(trace, events)
    # Who wrote the trace says how many steps are whole; a last one that was cut short is marked as well.
    whole = (content.get(OWN_KEY) or {}).get("steps")
    trace.steps = trace.steps[:whole]
    _take_in_memory(trace, events)
    linking.link(work, trace.operators, events)
    return trace


def find(paths: Iterable[Path]) -> list[Path]:
    """Return the traces among files and in folders, in order of their names within a folder.

    Raises:
        FileNotFoundError: A path does not exist, or a folder holds no trace.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted({*path.glob("*.pt.trace.json"), *path.glob("*.pt.trace.json.gz")})
            if not inside:
                raise FileNotFoundError(
                    f"{path} holds no trace: no file in it ends in .pt.trace.json or .pt.trace.json.gz"
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"there is no file {path}")
    return found


def _load(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            content = json.load(file)
    except (json.JSONDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} is not a whole trace: {error}. Its writer may have been stopped half-way") from error
    if isinstance(content, list):
        # Chrome's format also allows the events alone.
        content = {"traceEvents": content}
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise TraceError(f"{path} is JSON and not a trace: it has no list `traceEvents`")
    return content


def _describe(trace: Trace, content: dict[str, Any]) -> None:
    """Take what a trace says of itself."""
    own = content.get(OWN_KEY) or {}
    distributed = content.get("distributedInfo") or {}
    cards = [each for each in content.get("deviceProperties") or [] if isinstance(each, dict)]
    trace.rank = own.get("rank", distributed.get("rank"))
    trace.world_size = int(own.get("world_size", distributed.get("world_size", 1)))
    trace.host = str(own.get("host") or content.get("host_name") or "")
    trace.stage = str(own.get("stage", ""))
    trace.counted = own.get("counted") or {}
    trace.card = str(cards[-1].get("name", "")) if cards else ""
    trace.simulated = any(each.get("simulated") is True for each in cards)
    trace.dropped = sum(int(each.get("droppedEvents", 0)) for each in cards)
    trace.has_memory = bool(content.get("profile_memory"))


def _sort_out(trace: Trace, events: list[Event]) -> list[tuple[Work, Event]]:
    """Turn events with a duration into operators, work, steps and spans; return the work with its events."""
    names = {e["pid"]: str(e["args"].get("name", "")) for e in events if e.get("name") == "process_name"}
    lanes = {(e["pid"], e["tid"]): str(e["args"].get("name", "")) for e in events if e.get("name") == "thread_name"}
    work = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        lane = lanes.get((event["pid"], event["tid"]), f"stream {event['tid']}")
        on_card = names.get(event["pid"], "").startswith(_CARD)
        if category in _WORK and not lane.startswith(_LOG_LANE):
            work.append((_work(event, _WORK[category], lane), event))
        elif category in _OPERATORS and not on_card and not _MARKED.match(event["name"]):
            trace.operators.append(_operator(event))
        elif category != "python_function":
            _keep_span(trace, _span(event))
    for span in _logged(events):
        _keep_span(trace, span)
    trace.work = [each for each, _ in work]
    for sequence in (trace.operators, trace.work, trace.steps, trace.spans, trace.compilations):
        sequence.sort(key=lambda each: each.begin)
    for thread in by_thread(trace.operators).values():
        measure_own_time(thread)
    return work


def _keep_span(trace: Trace, span: Span) -> None:
    if _STEP.match(span.name):
        trace.steps.append(span)
    elif _COMPILATION.search(span.name):
        trace.compilations.append(span)
    else:
        trace.spans.append(span)


def _span(event: Event) -> Span:
    begin = float(event["ts"])
    return Span(str(event.get("name", "")), begin, begin + float(event.get("dur", 0)), event["tid"])


def _operator(event: Event) -> Operator:
    arguments = event.get("args") or {}
    begin = float(event["ts"])
    shapes = arguments.get("Input Dims", arguments.get("Input dims", ""))
    return Operator(
        name=str(event["name"]),
        begin=begin,
        end=begin + float(event.get("dur", 0)),
        thread=event["tid"],
        external_id=linking.external_id(arguments),
        shapes=str(shapes) if shapes else "",
    )


def _work(event: Event, kind: Kind, lane: str) -> Work:
    arguments = event.get("args") or {}
    name = str(event["name"])
    begin = float(event["ts"])
    if kind == "kernel" and (lane.startswith("NIC") or _COLLECTIVE.search(name)):
        kind = "collective"
    size = arguments.get("bytes", arguments.get("Bytes", 0))
    return Work(name, kind, lane, begin, begin + float(event.get("dur", 0)), int(size or 0))


def _logged(events: list[Event]) -> list[Span]:
    """Pair the begins and ends by which the bridge logs its own calls."""
    begun: dict[tuple[Any, Any], list[Event]] = {}
    spans = []
    for event in sorted((e for e in events if e.get("ph") in {"B", "E"}), key=lambda each: float(each["ts"])):
        stack = begun.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            opening = stack.pop()
            spans.append(Span(str(opening.get("name", "")), float(opening["ts"]), float(event["ts"]), event["tid"]))
    return spans


def _take_in_memory(trace: Trace, events: list[Event]) -> None:
    """Add what was taken and given back to the operators that were running."""
    taken: dict[int, list[tuple[float, int]]] = {}
    for event in events:
        if event.get("name") == "[memory]" and "Bytes" in (event.get("args") or {}):
            taken.setdefault(event["tid"], []).append((float(event["ts"]), int(event["args"]["Bytes"])))
    trace.has_memory = trace.has_memory or bool(taken)
    threads = by_thread(trace.operators)
    for thread, sizes in taken.items():
        sizes.sort()
        running = innermost(threads.get(thread, []), (time for time, _ in sizes))
        for operator, (_, size) in zip(running, sizes, strict=True):
            if operator is not None:
                operator.memory += size
