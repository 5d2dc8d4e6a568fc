"""Memory snapshots in the format of ``torch.cuda.memory._snapshot``, which torch's memory viewer reads.

Only code documents the format: torch/cuda/_memory_viz.py, and MemoryViz.js for the category of an allocation.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import CodeType, FrameType

#: Events that are kept, the newest ones.
MAX_EVENTS: Final = 500_000

# Of an address, as the device aligns its memory.
_ALIGNMENT: Final = 128


class MemorySnapshot:
    """History of a device's memory: each allocation and release, with the Python stack that caused it.

    Addresses are the snapshot's own. That of a released storage is used again for one of as many bytes.
    """

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        # Allocation of each storage that is alive.
        self._live: dict[int, dict[str, Any]] = {}
        self._made: dict[int, dict[str, Any]] = {}
        self._released: defaultdict[int, list[int]] = defaultdict(list)
        self._end = _ALIGNMENT
        self._frames: dict[tuple[CodeType, int], dict[str, Any]] = {}
        self._stacks: dict[tuple[tuple[CodeType, int], ...], list[dict[str, Any]]] = {}

    def add(self, changes: Iterable[tuple[int, int]]) -> None:
        """Add changes of the memory, the number of a storage and its bytes, that the caller's stack has caused."""
        stack: list[dict[str, Any]] | None = None
        for number, change in changes:
            stack = self._stack(frames.event_frame()) if stack is None else stack
            before = self._live.pop(number, None)
            size = change
            if before is not None:
                size += before["size"]
                self._released[before["size"]].append(before["addr"])
                for action in ("free_requested", "free_completed"):
                    self._add(action, before["addr"], before["size"], stack)
            if size > 0:
                event = self._add("alloc", self._find_address(size), size, stack)
                self._live[number] = self._made[number] = event

    def add_failure(self, size: int, free: int) -> None:
        """Add an allocation that failed for want of memory."""
        self._add("oom", 0, size, [])["device_free"] = free

    def categorize(self, names: Mapping[int, str]) -> None:
        """Name what storages hold that were allocated since the last call."""
        for number, name in names.items():
            if number in self._made:
                self._made[number]["category"] = name
        self._made = dict(self._live)

    def _add(self, action: str, address: int, size: int, stack: list[dict[str, Any]]) -> dict[str, Any]:
        now = time.time_ns() // 1000
        event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": now, "frames": stack}
        self._events.append(event)
        return event

    def _find_address(self, size: int) -> int:
        if self._released[size]:
            return self._released[size].pop()
        address = self._end
        self._end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return address

    def _stack(self, frame: FrameType | None) -> list[dict[str, Any]]:
        """Return the frames of a stack, innermost first; in a backward pass those of the thread that waits as well."""
        lines = []
        is_main = threading.current_thread() is threading.main_thread()
        for each in (frame, None if is_main else frames.backward_caller_frame()):
            while each is not None:
                if frames.package(each) != "hpu_sim":
                    lines.append((each.f_code, each.f_lineno))
                each = each.f_back  # noqa: PLW2901 - the next one.
        key = tuple(lines)
        if key not in self._stacks:
            self._stacks[key] = [self._frames.setdefault(line, _describe(*line)) for line in key]
        return self._stacks[key]

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot, as torch has it: one segment, and the trace of one device."""
        blocks = []
        end = _ALIGNMENT
        for each in sorted(self._live.values(), key=lambda event: event["addr"]):
            blocks += _gap(end, each["addr"])
            end = each["addr"] + each["size"]
            blocks.append(_block(each["addr"], each["size"], "active_allocated", each["frames"]))
        blocks += _gap(end, self._end)
        used = sum(each["size"] for each in self._live.values())
        segment = {
            "device": 0,
            "address": _ALIGNMENT,
            "total_size": self._end - _ALIGNMENT,
            "allocated_size": used,
            "active_size": used,
            "requested_size": used,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
        return {"segments": [segment], "device_traces": [list(self._events)], "allocator_settings": {}}


def write(snapshot: Mapping[str, Any], path: Path) -> None:
    """Write a snapshot to a file."""
    path.write_bytes(pickle.dumps(snapshot))


def merge(snapshots: Mapping[int, Path]) -> dict[str, Any]:
    """Return files with a snapshot of one device each, by rank, as one snapshot of as many devices."""
    traces: list[list[Any]] = [[] for _ in range(max(snapshots) + 1)]
    merged: dict[str, Any] = {"segments": [], "device_traces": traces, "allocator_settings": {}}
    for rank, path in snapshots.items():
        found = pickle.loads(path.read_bytes())  # noqa: S301 - this program's own.
        (traces[rank],) = found["device_traces"]
        merged["segments"] += [{**each, "device": rank} for each in found["segments"]]
    return merged


def _describe(code: CodeType, line: int) -> dict[str, Any]:
    return {"filename": sys.intern(code.co_filename), "line": line, "name": code.co_name}


def _block(address: int, size: int, state: str, stack: list[dict[str, Any]]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": stack}


def _gap(start: int, end: int) -> list[dict[str, Any]]:
    return [_block(start, end - start, "inactive", [])] if end > start else []
