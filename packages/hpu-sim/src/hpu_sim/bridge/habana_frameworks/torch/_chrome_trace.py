"""Events of the device for an exported Chrome trace, as the published bridge (1.19.0) writes them.

The times are those of the simulated device, which works on the host: they do not tell how long a card would take. What
releases after 1.19 write is not published, so all releases write this here. Lanes are numbered by engine, categories
follow from engines and names, and an event has its graph but no link to an operator. The names of copies, of events of
the network and of the host's calls are SynapseAI's own, which is closed: those here are assumed, as is that each kernel
is a graph of its own. As on a card, a graph has a call that launches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: As :meth:`hpu_sim.device.native.Native.stop_device_trace` returns them.
DeviceEvent = tuple[str, str, int, int, int, int]
TraceEvent = dict[str, Any]

_DEVICE_NAME: Final = "/device:HPU:0"
_DEVICE_PID: Final = 0
_DEVICE_SORT_INDEX: Final = 16777216
# Number of the type of the host's engine, which is the process of its calls, and their lanes.
_HOST_PID: Final = 2
_COMPILER_LANE: Final = 7000
_LAUNCH_LANE: Final = 7001
# Base of the lanes of each engine, and the start of their names.
_PDMA: Final = (3000, "PDMA")
_EDMA: Final = (4000, "EDMA")
_MME: Final = (6000, "MME")
_TPC: Final = (7000, "TPC")
_NIC: Final = (14000, "NIC")
_COPIES: Final = {
    "h2d": (_PDMA, "memcpy_h2d"),
    "d2h": (_PDMA, "memcpy_d2h"),
    "d2d": (_EDMA, "memcpy_d2d"),
}
# The matrix engine (MME) runs products and convolutions; the vector engines (TPC) run the rest.
_MATRIX_OPERATORS: Final = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "conv", "attention", "lstm")
_MAX_RECIPE: Final = 1 << 16
_NS_PER_US: Final = 1000


class TraceWriter:
    """Writer of the events of one trace.

    Args:
        base: Nanoseconds of the system's clock at time 0 of the trace.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._recipes: dict[str, int] = {}
        self._rows = _RowAllocator()
        self._lanes: dict[tuple[int, int], str] = {}

    def write(self, device_events: Iterable[DeviceEvent]) -> list[TraceEvent]:
        """Return the trace events of a device's work."""
        events: list[TraceEvent] = []
        # Outer events before the events within them.
        for device_event in sorted(device_events, key=lambda event: (event[2], -event[3])):
            events += self._events(device_event)
        return [*self._metadata(), *events]

    def _events(self, device_event: DeviceEvent) -> list[TraceEvent]:
        kind, name, start, end, _, size = device_event
        if kind == "compilation":
            return [self._host_call("synGraphCompile", start, end)]
        extras = {"bytes": str(size)} if size else {}
        if kind == "kernel":
            engine = _MME if _is_matrix_operator(name) else _TPC
            recipe = self._recipes.setdefault(name, len(self._recipes) % (_MAX_RECIPE - 1) + 1)
            launch = self._host_call("synLaunch_enqueueWithExternalEvents", start, start, recipe, name)
            arguments = {**_arguments(recipe, name), "device": 0, **extras}
            return [launch, self._event("Kernel", name, self._lane(engine, start, end), start, end, arguments)]
        engine, copy = _COPIES.get(kind, (_NIC, f"nic_{name}"))
        category = "Memcpy" if copy.startswith("memcpy") else "Runtime"
        arguments = {**_arguments(0, ""), **extras}
        return [self._event(category, copy, self._lane(engine, start, end), start, end, arguments)]

    def _lane(self, engine: tuple[int, str], start: int, end: int) -> tuple[int, int]:
        base, prefix = engine
        row = self._rows.allocate(base, start, end)
        self._lanes[_DEVICE_PID, base + row] = f"{prefix}_{row}"
        return _DEVICE_PID, base + row

    def _host_call(self, name: str, start: int, end: int, recipe: int = 0, recipe_name: str = "") -> TraceEvent:
        lane = _LAUNCH_LANE if recipe else _COMPILER_LANE
        self._lanes[_HOST_PID, lane] = "Synapse/launcher" if recipe else "Synapse/compiler"
        return self._event("Runtime", name, (_HOST_PID, lane), start, end, _arguments(recipe, recipe_name))

    def _event(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, category: str, name: str, lane: tuple[int, int], start: int, end: int, arguments: dict[str, Any]
    ) -> TraceEvent:
        return {
            "args": arguments,
            "cat": category,
            "dur": (end - start) / _NS_PER_US,
            "name": name,
            "ph": "X",
            "pid": lane[0],
            "tid": lane[1],
            # The bridge cuts times before the trace's base.
            "ts": max(start - self._base, 0) / _NS_PER_US,
        }

    def _metadata(self) -> list[TraceEvent]:
        process = {"ph": "M", "pid": _DEVICE_PID, "tid": 0, "ts": 0.0}
        metadata = [
            {**process, "name": "process_name", "args": {"name": _DEVICE_NAME}},
            {**process, "name": "process_labels", "args": {"labels": "simulated: measured on this machine's CPU"}},
            {**process, "name": "process_sort_index", "args": {"sort_index": _DEVICE_SORT_INDEX}},
        ]
        for (pid, tid), name in self._lanes.items():
            lane = {"ph": "M", "pid": pid, "tid": tid, "ts": 0.0}
            metadata.append({**lane, "name": "thread_name", "args": {"name": name}})
            metadata.append({**lane, "name": "thread_sort_index", "args": {"sort_index": -1}})
        return metadata


def _arguments(recipe: int, recipe_name: str) -> dict[str, Any]:
    return {
        "dataType": "",
        "eventHandle": "0x0",
        "recipeId": recipe,
        "recipeName": recipe_name,
        "streamHandle": "0x1" if recipe else "0x0",
    }


def _is_matrix_operator(name: str) -> bool:
    return any(part in name.rpartition("::")[2] for part in _MATRIX_OPERATORS)


class _RowAllocator:
    """Allocator of the rows of engines. In a row, Chrome's format allows only nested events; Perfetto drops others."""

    def __init__(self) -> None:
        self._open_ends: dict[int, list[list[int]]] = {}

    def allocate(self, engine: int, start: int, end: int) -> int:
        """Return the first row of an engine that an event fits into. Events must come in order of their start."""
        rows = self._open_ends.setdefault(engine, [])
        for row, ends in enumerate(rows):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return row
        rows.append([end])
        return len(rows) - 1
