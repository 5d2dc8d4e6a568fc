"""Metrics of the bridge, fed by what the simulator counts. Nothing here is a card's: no time passes in compiling."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.hpu import _metrics_file
from hpu_sim.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CACHE_VARIABLE: Final = "PT_HPU_ENABLE_CACHE_METRICS"

# Graphs that torch.compile made in eager mode, where the device itself sees none.
_compiled_by_dynamo = 0


class MetricNotFound(LookupError):  # noqa: N818 - the bridge's name
    """There is no metric of this name."""


def note_compilation() -> None:
    """Count a graph that torch.compile made."""
    global _compiled_by_dynamo  # noqa: PLW0603 - one bridge per process
    _compiled_by_dynamo += 1


def _graph_compilation() -> dict[str, int]:
    return {"TotalNumber": native().stats()["compilations"] + _compiled_by_dynamo}


def _recipe_cache() -> dict[str, int]:
    counted = native().stats()
    return {"TotalHit": counted["graphs"] - counted["compilations"], "TotalMiss": counted["compilations"]}


def _nothing() -> dict[str, int]:
    return {}


def _show_graph_compilation(counts: dict[str, int]) -> list[tuple[str, Any]]:
    return [("TotalNumber", counts["TotalNumber"]), ("TotalTime", 0), ("AvgTime", 0)]


def _show_cpu_fallback(_: dict[str, int]) -> list[tuple[str, Any]]:
    # Not counted: the simulator does not know which operators a card would run on the CPU.
    return [("TotalNumber", 0), ("FallbackOps", {})]


def _show_memory_defragmentation(_: dict[str, int]) -> list[tuple[str, Any]]:
    # Simulated memory is not one piece and so never falls apart.
    return [("TotalNumber", 0), ("TotalSuccessful", 0), ("AvgTime", 0), ("MaxTime", 0)]


def _show_recipe_cache(counts: dict[str, int]) -> list[tuple[str, Any]]:
    # Simulated recipes have no names to count by.
    return [
        ("TotalHit", counts["TotalHit"]),
        ("RecipeHit", {}),
        ("TotalMiss", counts["TotalMiss"]),
        ("RecipeMiss", {}),
    ]


_KINDS: Final = {
    "graph_compilation": (_graph_compilation, _show_graph_compilation),
    "cpu_fallback": (_nothing, _show_cpu_fallback),
    "memory_defragmentation": (_nothing, _show_memory_defragmentation),
}
_CACHE_KINDS: Final = {"recipe_cache": (_recipe_cache, _show_recipe_cache)}


class Metric:
    """A metric that counts while it is started.

    Args:
        name: Name of the metric.
        read: Gives the counts since the process began.
        show: Gives the statistics for counts.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], dict[str, int]],
        show: Callable[[dict[str, int]], list[tuple[str, Any]]],
    ) -> None:
        self._name = name
        self._read = read
        self._show = show
        self._counted: dict[str, int] = dict.fromkeys(read(), 0)
        self._since: dict[str, int] | None = None

    def name(self) -> str:
        """Return the name of the metric."""
        return self._name

    def start(self) -> None:
        """Count from here on."""
        self._collect()
        self._since = self._read()

    def stop(self) -> None:
        """Count no more."""
        self._collect()
        self._since = None

    def reset(self) -> None:
        """Start from zero."""
        self._counted = dict.fromkeys(self._counted, 0)
        if self._since is not None:
            self._since = self._read()

    def stats(self) -> list[tuple[str, Any]]:
        """Return the statistics in the bridge's order."""
        self._collect()
        return self._show(self._counted)

    def _collect(self) -> None:
        if self._since is None:
            return
        now = self._read()
        for key, value in now.items():
            # `hpu_sim.reset_stats()` sets the device's counters back, and with them what was read before.
            self._counted[key] += value - self._since[key] if value >= self._since[key] else value
        self._since = now


def _kinds() -> dict[str, tuple[Any, Any]]:
    return _KINDS | _CACHE_KINDS if os.environ.get(_CACHE_VARIABLE, "0").lower() in {"1", "true"} else dict(_KINDS)


def _start_all() -> dict[str, Metric]:
    metrics = {name: Metric(name, *kind) for name, kind in _kinds().items()}
    for metric in metrics.values():
        metric.start()
    return metrics


_global_metrics: Final = _start_all()
_metrics_file.start(_global_metrics.values())


def metric_global(name: str) -> Metric | None:
    """Return the metric that has counted since the bridge was imported; None where there is none of this name.

    Args:
        name: ``"graph_compilation"``, ``"cpu_fallback"``, ``"memory_defragmentation"``, or ``"recipe_cache"`` where
            ``PT_HPU_ENABLE_CACHE_METRICS`` was set at the import.
    """
    return _global_metrics.get(name)


@contextlib.contextmanager
def metric_localcontext(name: str) -> Iterator[Metric]:
    """Return a context with a metric that counts within it.

    Raises:
        MetricNotFound: If there is no metric of this name.
    """
    kinds = _kinds()
    if name not in kinds:
        raise MetricNotFound(f"`name` must be one of {', '.join(kinds)}, got {name!r}")
    metric = Metric(name, *kinds[name])
    metric.start()
    try:
        yield metric
    finally:
        metric.stop()


def metrics_dump(file_name: str, format: str = "json") -> None:  # noqa: A002 - the bridge's name
    """Add the global metrics to a file.

    Args:
        file_name: The file; ``-rank`` and ``RANK`` go before its suffix where that variable is set.
        format: ``"json"`` or ``"text"``.

    Raises:
        ValueError: If the format is another one.
        OSError: If the file cannot be written.
    """
    _metrics_file.dump(file_name, format, "user", _global_metrics.values())
