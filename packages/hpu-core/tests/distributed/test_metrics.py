"""Metrics of a module; the contexts of their collectives are recorded."""

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric

from hpu_core.distributed.metrics import CountedMetrics

GROUP = object()


class Collectives:
    """Record of the collectives that were entered."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, Any]] = []

    @contextmanager
    def __call__(self, name: str, group: Any | None = None) -> Iterator[None]:
        self.entered.append((name, group))
        yield


def _twice(tensor: Tensor, group: Any | None = None) -> list[Tensor]:
    """Gather from two ranks that have the same."""
    return [tensor, tensor]


def _metric(kind: type[Metric] = SumMetric, **options: Any) -> Metric:
    return kind(dist_sync_fn=_twice, distributed_available_fn=lambda: True, **options)


def _pickled(module: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(module))  # noqa: S301 - it reads what it has just written.


def _module(*metrics: Metric) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), *metrics)


def test_synchronization_is_a_collective() -> None:
    collectives, metric = Collectives(), _metric()
    CountedMetrics(_module(metric), collectives)
    metric.update(3)

    assert metric.compute() == 6
    assert collectives.entered == [("metric synchronization", None)]


def test_metrics_of_a_collection_are_counted() -> None:
    collectives, module = Collectives(), nn.Module()
    module.metrics = MetricCollection({"sum": _metric(), "mean": _metric(MeanMetric)}, compute_groups=False)
    CountedMetrics(module, collectives)
    module.metrics.update(torch.tensor(3.0))
    module.metrics.compute()

    # The mean has two states.
    assert len(collectives.entered) == 3


def test_the_group_of_a_metric_is_passed_on() -> None:
    collectives, metric = Collectives(), _metric(process_group=GROUP)
    CountedMetrics(_module(metric), collectives)
    metric.update(3)
    metric.compute()

    assert collectives.entered == [("metric synchronization", GROUP)]


def test_restore() -> None:
    collectives, metric, default = Collectives(), _metric(), SumMetric()
    CountedMetrics(_module(metric, default), collectives).restore()

    assert (metric.dist_sync_fn, default.dist_sync_fn) == (_twice, None)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, _pickled])
@pytest.mark.parametrize("function", [_twice, None])
def test_a_copy_of_the_module_has_its_own_functions(duplicate: Any, function: Any) -> None:
    """As those that callbacks make of a module. The watchdog could not be copied."""
    metric = SumMetric(dist_sync_fn=function)
    module = _module(metric)
    CountedMetrics(module, Collectives())

    assert duplicate(module)[1].dist_sync_fn is function


def test_a_module_without_metrics() -> None:
    CountedMetrics(nn.Linear(2, 2), Collectives()).restore()
