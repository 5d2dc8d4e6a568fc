"""Host work of the thread that runs the steps: what it does, in which of the user's lines, and for how long.

Each moment belongs to the innermost span that says more than its callers: an action of Lightning, a callback, a logger,
the DataLoader, a function of the user's program, an operator. Functions need stacks (`with_stack=True`); without them,
Lightning's name of a hook stands for its line.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from hpu_core import bridge
from hpu_profiler.trace.call_stack import owner_intervals
from hpu_profiler.trace.intervals import intersection, length, union
from hpu_profiler.trace.model import Operator

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan, Trace

__all__ = [
    "CATEGORIES",
    "Category",
    "HostWork",
    "Owner",
    "host_work",
    "is_data_loading",
    "location_at",
    "sync_operators",
    "user_location",
]

Category = Literal[
    "data loading", "host sync", "callback", "logger", "user code", "Lightning", "optimizer", "operators", "unrecorded"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

_ACTION_PREFIX: Final = "[pl][profile]"
_HOOK_RE: Final = re.compile(r"^\[(Callback|LightningModule|LightningDataModule|Strategy)\](.+)$")
_STATE_KEY_RE: Final = re.compile(r"\{.*\}")
_DATA_LOADING_RE: Final = re.compile(
    r"dataloader_next$|\.(val|test|predict|sanity_check)_next$|^enumerate\(DataLoader\)"
)
# Actions that Lightning's own code names.
_LIGHTNING_ACTION_RE: Final = re.compile(r"^(\[_?\w+\]|run_training_(batch|epoch)$|save_checkpoint$)")
_SYNC_OPERATORS: Final = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero"})
_SYNC_RE: Final = re.compile(r"synchroni[sz]e|(^|_)wait", re.IGNORECASE)
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
_OWN_PACKAGE_RE: Final = re.compile(r"^hpu_(bucketing|compat|core|ddp|deepspeed|fsdp|precision|profiler|ray|sim)$")


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
    recorded: list[Interval] = []
    for owner, intervals in _owner_intervals(trace).items():
        within = intersection(union(intervals), windows)
        recorded += within
        if within:
            rows.append(HostWork(owner, length(within), length(intersection(within, idle))))
    covered = union(recorded)
    rest = HostWork(
        Owner("unrecorded"),
        length(windows) - length(covered),
        length(intersection(windows, idle)) - length(intersection(covered, idle)),
    )
    return tuple(sorted([*rows, rest], key=lambda row: (-row.idle, -row.time)))


def is_data_loading(span: HostSpan) -> bool:
    """Return whether a span is an action of a DataLoader."""
    return bool(_DATA_LOADING_RE.search(span.name))


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
        or _OWN_PACKAGE_RE.match(package)
        or "-packages/" in match["file"]
    )
    return "" if is_library else f"{match['file']}:{match['line']} {match['function']}"


def _owner_intervals(trace: Trace) -> dict[Owner, list[Interval]]:
    thread = trace.step_thread
    syncs = sync_operators(trace)
    # The program that calls the Trainer encloses all steps, so it explains none.
    inner = [frame for frame in trace.frames if not _encloses(frame, trace)]
    frames = {name: user_location(name, trace.libraries) for name in {frame.name for frame in inner}}
    spans: list[HostSpan] = [
        span for group in (trace.spans, inner, trace.operators) for span in group if span.thread == thread
    ]

    def owner(span: HostSpan, caller: Owner | None) -> Owner | None:
        if isinstance(span, Operator):
            return _operator_owner(span, caller, is_sync=id(span) in syncs)
        if span.name in frames:
            return _frame_owner(span.name, frames[span.name], caller)
        return _annotation_owner(span.name, caller, trace)

    return owner_intervals(spans, owner)


def _encloses(frame: HostSpan, trace: Trace) -> bool:
    return any(frame.start <= start and frame.end >= end for start, end in trace.windows)


def sync_operators(trace: Trace) -> set[int]:
    """Return the ids of the operators that read a value from the device.

    `.item()` of a tensor on the host is the same operator, without a copy from the device.
    """
    candidates = [operator for operator in trace.operators if operator.name in _SYNC_OPERATORS]
    copies = [event.operator for event in trace.device_events if event.kind == "memcpy" and event.operator]
    if not copies:
        return {id(operator) for operator in candidates}
    readers = sorted((operator.start, operator.end, operator.thread) for operator in copies)
    found = set()
    for operator in candidates:
        index = bisect_left(readers, (operator.start,))
        if index < len(readers) and readers[index][0] <= operator.end:
            found.add(id(operator))
    return found


def _operator_owner(operator: Operator, caller: Owner | None, *, is_sync: bool) -> Owner | None:
    if is_sync:
        location = caller.location if caller else ""
        return Owner("host sync", operator.name.removeprefix("aten::").lstrip("_"), location)
    if caller is None or caller.category in {"user code", "Lightning"}:
        return Owner("operators", caller.name if caller else "", caller.location if caller else "")
    return caller


def _frame_owner(name: str, location: str, caller: Owner | None) -> Owner | None:
    if _LOGGER_RE.match(name):
        return caller if caller and caller.category == "logger" else Owner("logger", name, "")
    if not location:
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


def location_at(trace: Trace, thread: int, time: float) -> str:
    """Return the innermost user's function that runs at a time; empty if the trace does not show it.

    Args:
        trace: The trace.
        thread: Thread id.
        time: Time on the trace's clock.
    """
    location = ""
    for frame in trace.frames:
        if frame.start > time:
            break
        if frame.thread == thread and frame.end >= time and not _encloses(frame, trace):
            location = user_location(frame.name, trace.libraries) or location
    if location:
        return location
    hooks = (span.name for span in trace.spans if span.thread == thread and span.start <= time <= span.end)
    names = (name.removeprefix(_ACTION_PREFIX) for name in hooks)
    return next((trace.sources[name] for name in reversed([*names]) if name in trace.sources), "")
