"""Metrics of the bridge, computed from the simulator's counters. Compilation takes no time here."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.counters import lifetime_stats
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Read = Callable[[], dict[str, int]]
    _Format = Callable[[dict[str, int]], list[tuple[str, Any]]]

# Recipes of torch.compile, in eager mode. The device counts only those of lazy mode.
_dynamo_compilations = 0


class MetricNotFound(LookupError):  # noqa: N818 - the bridge's name
    """Error of an unknown metric name."""


def count_compilations(number: int) -> None:
    """Count recipes compiled by torch.compile."""
    global _dynamo_compilations  # noqa: PLW0603 - one bridge per process
    _dynamo_compilations += number


def _format_graph_compilation(counts: dict[str, int]) -> list[tuple[str, Any]]:
    return [("TotalNumber", counts["TotalNumber"]), ("TotalTime", 0), ("AvgTime", 0)]


def _format_cpu_fallback(counts: dict[str, int]) -> list[tuple[str, Any]]:
    fallbacks = {op: count for op, count in counts.items() if count}
    return [("TotalNumber", sum(fallbacks.values())), ("FallbackOps", fallbacks)]


# Functions that read the counts of a metric, and format them.
_METRICS: Final[dict[str, tuple[_Read, _Format]]] = {
    "graph_compilation": (
        lambda: {"TotalNumber": lifetime_stats()["compilations"] + _dynamo_compilations},
        _format_graph_compilation,
    ),
    "cpu_fallback": (lambda: native().cpu_placement_counts(), _format_cpu_fallback),
}


class Metric:
    """Metric that counts while it is started."""

    def __init__(self, name: str, read: _Read, format_stats: _Format) -> None:
        self._name = name
        self._read = read
        self._format_stats = format_stats
        self._counts: Counter[str] = Counter()
        self._baseline: dict[str, int] | None = None

    def name(self) -> str:
        """Return the name of the metric."""
        return self._name

    def start(self) -> None:
        """Start counting."""
        self._collect()
        self._baseline = self._read()

    def stop(self) -> None:
        """Stop counting."""
        self._collect()
        self._baseline = None

    def reset(self) -> None:
        """Reset the counts to zero."""
        self._counts.clear()
        if self._baseline is not None:
            self._baseline = self._read()

    def stats(self) -> list[tuple[str, Any]]:
        """Return the statistics in the bridge's order."""
        self._collect()
        return self._format_stats(self._counts)

    def _collect(self) -> None:
        if self._baseline is not None:
            now = self._read()
            self._counts.update(now)
            self._counts.subtract(self._baseline)
            self._baseline = now


def _start_all() -> dict[str, Metric]:
    metrics = {name: Metric(name, *kind) for name, kind in _METRICS.items()}
    for metric in metrics.values():
        metric.start()
    return metrics


_global_metrics: Final = _start_all()


def metric_global(name: str) -> Metric | None:
    """Return the metric that counts since the import of the bridge; None for an unknown name.

    Args:
        name: ``"graph_compilation"`` or ``"cpu_fallback"``.
    """
    return _global_metrics.get(name)


@contextlib.contextmanager
def metric_localcontext(name: str) -> Iterator[Metric]:
    """Return a context manager whose metric counts in its body.

    Raises:
        MetricNotFound: If the name is unknown.
    """
    if name not in _METRICS:
        raise MetricNotFound(f"`name` must be one of {', '.join(_METRICS)}, got {name!r}")
    metric = Metric(name, *_METRICS[name])
    metric.start()
    try:
        yield metric
    finally:
        metric.stop()
