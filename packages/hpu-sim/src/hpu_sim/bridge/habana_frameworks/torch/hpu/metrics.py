"""Metrics of the bridge, computed from the simulator's counters. Compilation takes no time here."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.counters import lifetime_stats
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Read = Callable[[], dict[str, int]]
    _Format = Callable[[dict[str, int]], list[tuple[str, Any]]]

_CACHE_VARIABLE: Final = "PT_HPU_ENABLE_CACHE_METRICS"

# Recipes of torch.compile, in eager mode. The device counts only those of lazy mode.
_dynamo_compilations = 0


class MetricNotFound(LookupError):  # noqa: N818 - the bridge's name
    """Error of an unknown metric name."""


def count_compilations(number: int) -> None:
    """Count recipes compiled by torch.compile."""
    global _dynamo_compilations  # noqa: PLW0603 - one bridge per process
    _dynamo_compilations += number


def _recipe_cache() -> dict[str, int]:
    counters = lifetime_stats()
    return {"TotalHit": counters["graphs"] - counters["compilations"], "TotalMiss": counters["compilations"]}


def _format_graph_compilation(counts: dict[str, int]) -> list[tuple[str, Any]]:
    return [("TotalNumber", counts["TotalNumber"]), ("TotalTime", 0), ("AvgTime", 0)]


def _format_cpu_fallback(counts: dict[str, int]) -> list[tuple[str, Any]]:
    fallbacks = {op: count for op, count in counts.items() if count}
    return [("TotalNumber", sum(fallbacks.values())), ("FallbackOps", fallbacks)]


def _format_recipe_cache(counts: dict[str, int]) -> list[tuple[str, Any]]:
    # Simulated recipes have no names.
    return [
        ("TotalHit", counts["TotalHit"]),
        ("RecipeHit", {}),
        ("TotalMiss", counts["TotalMiss"]),
        ("RecipeMiss", {}),
    ]


# Functions that read the counts of a metric, and format them.
_METRICS: Final[dict[str, tuple[_Read, _Format]]] = {
    "graph_compilation": (
        lambda: {"TotalNumber": lifetime_stats()["compilations"] + _dynamo_compilations},
        _format_graph_compilation,
    ),
    "cpu_fallback": (lambda: native().cpu_placement_counts(), _format_cpu_fallback),
}
_CACHE_METRICS: Final[dict[str, tuple[_Read, _Format]]] = {"recipe_cache": (_recipe_cache, _format_recipe_cache)}


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


def _available_metrics() -> dict[str, tuple[_Read, _Format]]:
    has_cache = os.environ.get(_CACHE_VARIABLE, "0").lower() in {"1", "true"}
    return _METRICS | _CACHE_METRICS if has_cache else _METRICS


def _start_all() -> dict[str, Metric]:
    metrics = {name: Metric(name, *kind) for name, kind in _available_metrics().items()}
    for metric in metrics.values():
        metric.start()
    return metrics


_global_metrics: Final = _start_all()


def metric_global(name: str) -> Metric | None:
    """Return the metric that counts since the import of the bridge; None for an unknown name.

    Args:
        name: ``"graph_compilation"``, ``"cpu_fallback"``, or ``"recipe_cache"`` if ``PT_HPU_ENABLE_CACHE_METRICS`` was
            set during the import.
    """
    return _global_metrics.get(name)


@contextlib.contextmanager
def metric_localcontext(name: str) -> Iterator[Metric]:
    """Return a context manager whose metric counts in its body.

    Raises:
        MetricNotFound: If the name is unknown.
    """
    available = _available_metrics()
    if name not in available:
        raise MetricNotFound(f"`name` must be one of {', '.join(available)}, got {name!r}")
    metric = Metric(name, *available[name])
    metric.start()
    try:
        yield metric
    finally:
        metric.stop()
