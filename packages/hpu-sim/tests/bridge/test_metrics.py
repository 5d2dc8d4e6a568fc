"""Metrics of the bridge."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hpu_sim

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it
_metrics = hpu.metrics


def _compile_something(size: int) -> None:
    # A graph that no other test runs.
    torch.ones(size, device="hpu").erfc().expm1()
    hpu.synchronize()


def _count(metric: Any) -> int:
    return int(dict(metric.stats())["TotalNumber"])


def test_a_local_metric_counts_within_its_context() -> None:
    hpu.synchronize()
    with hpu.metric_localcontext("graph_compilation") as metric:
        _compile_something(1001)
        inside = _count(metric)
    _compile_something(1003)

    assert inside == _count(metric) == 1


def test_the_global_metric_counts_from_the_import() -> None:
    """Every call returns the same object."""
    metric = hpu.metric_global("graph_compilation")
    before = _count(metric)

    _compile_something(1007)

    assert _count(hpu.metric_global("graph_compilation")) == before + 1


def test_a_metric_can_be_reset_and_restarted() -> None:
    """It does not count between `stop` and `start`, and `reset_stats` has no effect on it."""
    with hpu.metric_localcontext("graph_compilation") as metric:
        _compile_something(1009)
        metric.reset()
        _compile_something(1011)
        metric.stop()
        _compile_something(1013)
        metric.start()
        hpu_sim.reset_stats()
        _compile_something(1015)

    assert metric.name() == "graph_compilation"
    assert _count(metric) == 2
    metric.reset()
    assert _count(metric) == 0


def test_an_unknown_metric_does_not_exist() -> None:
    """The global one is None, the local one an error that lists the names."""
    assert hpu.metric_global("nonsense") is None
    with (
        pytest.raises(_metrics.MetricNotFound, match=r"`name` must be one of graph_compilation, .*, got 'nonsense'"),
        hpu.metric_localcontext("nonsense"),
    ):
        pass
