"""Events of the simulated device and of a Chrome trace, and the rows of its lanes."""

from __future__ import annotations

from typing import Any, Final

DEVICE_NAME: Final = "/device:HPU:0"

#: As :meth:`hpu_sim.device.native.Native.stop_device_trace` returns them.
DeviceEvent = tuple[str, str, int, int, int, int]
TraceEvent = dict[str, Any]


class RowAllocator:
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
