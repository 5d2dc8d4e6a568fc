"""Kernels by engine, and sequences that repeat."""

from hpu_profiler.analysis.kernels import engine_stats, kernel_patterns
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


def test_longest_repeating_sequence_is_found() -> None:
    """Its parts are left out; copies between kernels do not count."""
    names = ["mul", "add", "relu", "mm"]
    events = [_event(name, 10 * index, 2) for index, name in enumerate(names * 3)]
    events.insert(2, _event("Memcpy DtoD", 11, 1, "DMA", "memcpy"))

    patterns = kernel_patterns(events)

    # Those that begin elsewhere in the cycle fit twice into twelve kernels.
    assert [(pattern.kernels, pattern.count, pattern.time) for pattern in patterns] == [
        (("mul", "add", "relu", "mm"), 3, 24),
        (("add", "relu", "mm", "mul"), 2, 16),
        (("relu", "mm", "mul", "add"), 2, 16),
        (("mm", "mul", "add", "relu"), 2, 16),
    ]


def test_sequence_that_occurs_once_is_not_a_pattern() -> None:
    assert kernel_patterns([_event(str(index), index, 1) for index in range(10)]) == ()


def test_occurrences_do_not_overlap() -> None:
    """Nine equal kernels hold three sequences of three."""
    patterns = kernel_patterns([_event("add", index, 1) for index in range(9)])

    assert {len(pattern.kernels): pattern.count for pattern in patterns}[3] == 3
