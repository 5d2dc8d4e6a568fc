"""Host work of the thread that runs the steps: what it does, in which of the user's lines, and for how long.

Each moment belongs to the innermost span that says more than its callers: an action of Lightning, a callback, a logger,
the DataLoader, a function of the user's program, an operator. Functions need stacks (`with_stack=True`); without them,
Lightning's name of a hook stands for its line.
"""

from __future__ import annotations

import functools
import re
import sys
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from hpu_core import bridge
from hpu_profiler.analysis.device_events import UNKNOWN_DIRECTION, copy_direction
from hpu_profiler.trace.call_stack import call_order, innermost_spans, owner_intervals
from hpu_profiler.trace.intervals import intersection, length
from hpu_profiler.trace.model import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Trace

Category = Literal[
    "data loading", "host sync", "callback", "logger", "user code", "Lightning", "optimizer", "operators", "unrecorded"
]

_ACTION_PREFIX: Final = "[pl][profile]"
_HOOK_RE: Final = re.compile(r"^\[(Callback|LightningModule|LightningDataModule|Strategy)\](.+)$")
_STATE_KEY_RE: Final = re.compile(r"\{.*\}")
_DATA_LOADING_RE: Final = re.compile(
    r"dataloader_next$|\.(val|test|predict|sanity_check)_next$|^enumerate\(DataLoader\)"
)
# Actions that Lightning's own code names.
_LIGHTNING_ACTION_RE: Final = re.compile(r"^(\[_?\w+\]|run_training_(batch|epoch)$|save_checkpoint$)")
#: Operators that read a value, and those that may copy to the host, by the call that a program makes.
_READING_OPERATORS: Final = {
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "if tensor:",
    "aten::nonzero": ".nonzero()",
}
_COPYING_OPERATORS: Final = {"aten::copy_": ".cpu()", "aten::_to_copy": ".cpu()", "aten::to": ".cpu()"}
_READING_CALLS: Final = frozenset({".cpu()", ".tolist()", ".numpy()"})
_SYNC_RE: Final = re.compile(r"synchroni[sz]e|(^|_)wait", re.IGNORECASE)
_PROGRESS_BAR_RE: Final = re.compile(r"/callbacks/progress/|tqdm|rich/")
_FRAME_RE: Final = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_LOGGER_RE: Final = re.compile(r"^(lightning/pytorch|pytorch_lightning|lightning/fabric|lightning_fabric)/loggers/")
#: Packages whose functions are not the user's, for traces that do not name the installed packages.
_LIBRARIES: Final = frozenset(
    {
        bridge.PACKAGE,
        "PIL",
        "accelerate",
        "deepspeed",
        "fsspec",
        "lightning",
        "lightning_fabric",
        "lightning_utilities",
        "mlflow",
        "numpy",
        "packaging",
        "pandas",
        "pytorch_lightning",
        "rich",
        "sklearn",
        "tensorboard",
        "torch",
        "torchmetrics",
        "tqdm",
        "transformers",
        "typing_extensions",
        "wandb",
    }
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Kind of host work.

    Attributes:
        category: Category of the work.
        name: Action, callback, function or module.
        location: The user's line as "file:line function"; empty if the trace does not show it.
    """

    category: Category
    name: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class HostWork:
    """Time of one kind of host work.

    Attributes:
        owner: Kind of work.
        time: Time on the host, in microseconds.
        idle: Part of it in which the device had no work.
    """

    owner: Owner
    time: float
    idle: float


def host_work(trace: Trace, idle: list[Interval]) -> tuple[HostWork, ...]:
    """Return the host work within the windows of a trace, longest idle time first, then longest time.

    Args:
        trace: Trace of one stage.
        idle: Time in which the device had no work, as disjoint intervals.
    """
    windows = trace.windows
    rows = []
    for owner, intervals in _owner_intervals(trace).items():
        within = intersection(intervals, windows)
        if within:
            rows.append(HostWork(owner, length(within), length(intersection(within, idle))))
    # The times of the owners do not overlap.
    rest = HostWork(
        Owner("unrecorded"),
        length(windows) - sum(row.time for row in rows),
        length(intersection(windows, idle)) - sum(row.idle for row in rows),
    )
    return tuple(sorted([*rows, rest], key=lambda row: (-row.idle, -row.time)))


def is_data_loading(span: HostSpan) -> bool:
    """Return whether a span is an action of a DataLoader."""
    return bool(_DATA_LOADING_RE.search(span.name))


@functools.lru_cache(maxsize=1 << 16)
def user_location(name: str, libraries: frozenset[str]) -> str:
    """Return the location of a Python frame as "file:line function"; empty if the frame is not the user's.

    Args:
        name: Name of the frame in the trace, such as "train.py(12): training_step".
        libraries: Names of the installed packages; empty if they are unknown.
    """
    match = _FRAME_RE.match(name)
    if match is None or match["file"].startswith("<"):
        return ""
    package = match["file"].replace("\\", "/").lstrip("/").split("/")[0].removesuffix(".py")
    is_library = (
        package in sys.stdlib_module_names
        or package in libraries
        or package in _LIBRARIES
        or package.startswith(("hpu_", "lightning_habana"))
        or "-packages/" in match["file"]
    )
    return "" if is_library else f"{match['file']}:{match['line']} {match['function']}"


def _owner_intervals(trace: Trace) -> dict[Owner, list[Interval]]:
    thread = trace.step_thread
    syncs = {id(span): name for span, name in sync_spans(trace)}
    # The program that calls the Trainer encloses all steps, so it explains none.
    inner = _frames_within(trace)
    frames = {name: user_location(name, trace.libraries) for name in {frame.name for frame in inner}}
    calls = [call for call in trace.sync_calls if id(call) in syncs]
    spans: list[HostSpan] = [
        span for group in (trace.spans, inner, calls, trace.operators) for span in group if span.thread == thread
    ]

    def owner(span: HostSpan, caller: Owner | None) -> Owner | None:
        if id(span) in syncs:
            location = getattr(span, "location", "") or (caller.location if caller else "")
            return Owner("host sync", syncs[id(span)], location)
        if isinstance(span, Operator):
            return _operator_owner(caller)
        if span.name in frames:
            return _frame_owner(span.name, frames[span.name], caller)
        return _annotation_owner(span.name, caller, trace)

    return owner_intervals(spans, owner)


def _frames_within(trace: Trace) -> list[HostSpan]:
    """Return the calls of functions that do not enclose a window of the trace."""
    starts = [start for start, _ in trace.windows]
    ends = [end for _, end in trace.windows]

    def encloses(frame: HostSpan) -> bool:
        index = bisect_left(starts, frame.start)
        return index < len(ends) and ends[index] <= frame.end

    return [frame for frame in trace.frames if not encloses(frame)]


def sync_spans(trace: Trace) -> list[tuple[HostSpan, str]]:
    """Return the outermost calls or operators of the steps' thread that wait for the device, each with its name.

    `.item()` of a tensor on the host is the same operator, without a copy from the device.
    """
    thread = trace.step_thread
    operators = [operator for operator in _sync_operators(trace) if operator.thread == thread]
    starts = [operator.start for operator in operators]
    found: list[tuple[HostSpan, str]] = []
    for call in trace.sync_calls:
        index = bisect_left(starts, call.start)
        if call.thread == thread and index < len(starts) and starts[index] <= call.end:
            found.append((call, "progress bar" if _PROGRESS_BAR_RE.search(call.location) else call.name))
    names = _READING_OPERATORS | _COPYING_OPERATORS
    found += [(operator, names.get(operator.name, ".cpu()")) for operator in operators]
    top_level: list[tuple[HostSpan, str]] = []
    for span, name in sorted(found, key=lambda pair: call_order(pair[0])):
        # print() calls .item(), and aten::item calls aten::_local_scalar_dense.
        if not top_level or span.start >= top_level[-1][0].end:
            top_level.append((span, name))
    return top_level


def _sync_operators(trace: Trace) -> list[Operator]:
    """Return the operators that read a value from the device, ordered by start."""
    copies = [event for event in trace.device_events if event.kind == "memcpy"]
    directions = {name: copy_direction(name) for name in {event.name for event in copies}}
    to_host = [event for event in copies if directions[event.name] in {"device to host", UNKNOWN_DIRECTION}]
    readers = {id(event.operator): event.operator for event in to_host if event.operator is not None}
    # The traces of the bridge link no copy to its operator: the time of a copy tells which one waits for it.
    is_linked = any(event.operator is not None for event in copies)
    waits = sorted(span.interval for span in (*trace.spans, *trace.sync_calls) if _may_wait(span.name))
    reads = sorted(each.interval for each in (readers.values() if is_linked else to_host))
    found = []
    for operator in trace.operators:
        if operator.name in _READING_OPERATORS:
            # The host waits for the number of elements, of which no copy is in the trace.
            is_counted = operator.name == "aten::nonzero" and not is_linked
            is_found = not copies or is_counted or _contains_start(operator, reads)
        elif operator.name in _COPYING_OPERATORS:
            is_found = id(operator) in readers if is_linked else _contains_start(operator, waits)
        else:
            is_found = False
        if is_found:
            found.append(operator)
    return found


@functools.lru_cache(maxsize=1 << 16)
def _may_wait(name: str) -> bool:
    return name in _READING_CALLS or bool(_SYNC_RE.search(name))


def _contains_start(operator: Operator, intervals: list[Interval]) -> bool:
    index = bisect_left(intervals, (operator.start,))
    return index < len(intervals) and intervals[index][0] <= operator.end


def _operator_owner(caller: Owner | None) -> Owner:
    if caller is None or caller.category in {"user code", "Lightning"}:
        return Owner("operators", caller.name if caller else "", caller.location if caller else "")
    return caller


def _frame_owner(name: str, location: str, caller: Owner | None) -> Owner | None:
    if _LOGGER_RE.match(name):
        return caller if caller and caller.category == "logger" else Owner("logger", name, "")
    if not location or (caller and caller.category == "host sync"):
        return caller
    if caller is None or caller.category in {"user code", "Lightning", "operators", "optimizer"}:
        return Owner("user code", location.rpartition(" ")[2], location)
    return replace(caller, location=location)


def _annotation_owner(name: str, caller: Owner | None, trace: Trace) -> Owner | None:
    if _DATA_LOADING_RE.search(name):
        return caller if caller and caller.category == "data loading" else Owner("data loading", "DataLoader")
    if _SYNC_RE.search(name):
        return Owner("host sync", name, caller.location if caller else "")
    if caller and caller.category in {"data loading", "callback", "logger"}:
        return caller
    if name.startswith("Optimizer."):
        return Owner("optimizer", name.partition("#")[2] or name)
    if not name.startswith(_ACTION_PREFIX):
        return caller
    return _action_owner(name.removeprefix(_ACTION_PREFIX), caller, trace)


def _action_owner(action: str, caller: Owner | None, trace: Trace) -> Owner:
    hook = _HOOK_RE.match(action)
    if hook is None:
        if _LIGHTNING_ACTION_RE.match(action):
            return Owner("Lightning", action)
        return Owner("user code", action, caller.location if caller else "")
    name = _STATE_KEY_RE.sub("", hook[2])
    location = trace.sources.get(f"[{hook[1]}]{name}", "")
    if hook[1] == "Callback":
        return Owner("callback", name, location)
    # A hook that the user did not override has no line of the user's.
    if location:
        return Owner("user code", name, location)
    return Owner("Lightning", name)


def locations(trace: Trace, points: Iterable[tuple[int, float]]) -> list[str]:
    """Return the innermost user's function that runs at each point; empty where the trace does not show it."""
    points = list(points)
    found: dict[tuple[int, float], str] = {}
    frames = [(frame, user_location(frame.name, trace.libraries)) for frame in _frames_within(trace)]
    hooks = [(span, trace.sources.get(span.name.removeprefix(_ACTION_PREFIX), "")) for span in trace.spans]
    for thread in {thread for thread, _ in points}:
        times = sorted(time for other, time in points if other == thread)
        for pairs in (hooks, frames):
            at = {id(span): location for span, location in pairs if location and span.thread == thread}
            spans = sorted((span for span, _ in pairs if id(span) in at), key=call_order)
            for time, span in zip(times, innermost_spans(spans, times), strict=True):
                if span is not None:
                    found[thread, time] = at[id(span)]
    return [found.get(point, "") for point in points]


def enclosing_actions(trace: Trace, thread: int, times: Iterable[float]) -> list[str]:
    """Return the innermost action of Lightning that runs at each time, which must ascend; empty without one."""
    spans = [span for span in trace.spans if span.thread == thread and span.name.startswith(_ACTION_PREFIX)]
    spans.sort(key=call_order)
    return [_action_name(span.name) if span else "" for span in innermost_spans(spans, times)]


def _action_name(name: str) -> str:
    action = name.removeprefix(_ACTION_PREFIX)
    hook = _HOOK_RE.match(action)
    return _STATE_KEY_RE.sub("", hook[2]) if hook else action
