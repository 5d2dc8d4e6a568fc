"""Kernels by engine."""

from hpu_profiler.analysis.kernels import engine_stats
from hpu_profiler.trace.model import DeviceEvent, DeviceEventKind


def _event(
    name: str, start: float, duration: float, track: str = "TPC", kind: DeviceEventKind = "kernel"
) -> DeviceEvent:
    return DeviceEvent(name, start, start + duration, kind, track)


def test_events_are_grouped_by_engine() -> None:
    """A trace of another device does not name engines."""
    stats = engine_stats(
        [
            _event("mm", 0, 5, "MME"),
            _event("mm", 3, 5, "MME"),
            _event("add", 9, 1, "TPC"),
            _event("Memcpy HtoD", 10, 2, "compute", "memcpy"),
            _event("all_reduce", 12, 20, "compute", "collective"),
            _event("gemm", 12, 3, "compute"),
        ]
    )

    assert [(each.engine, each.events, each.time, each.busy_time) for each in stats] == [
        ("NIC", 1, 20, 20),
        ("MME", 2, 10, 8),
        ("compute", 1, 3, 3),
        ("DMA", 1, 2, 2),
        ("TPC", 1, 1, 1),
    ]
    assert stats[1].top_kernels == (("mm", 2, 10),)
