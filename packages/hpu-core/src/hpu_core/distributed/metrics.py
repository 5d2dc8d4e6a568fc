"""Synchronization of torchmetrics' metrics, counted as a collective.

A metric calls `torch.distributed` itself, so a rank that hangs would hold the others in `compute()` unnoticed.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

_SyncFunction = Callable[..., list[Tensor]]


class CountedMetrics:
    """Synchronizations of a module's metrics, counted as collectives until `restore` is called."""

    def __init__(self, module: nn.Module, collective: Callable[..., AbstractContextManager[None]]) -> None:
        # A module that has a metric has imported it, and hpu-core does not require it.
        kind = getattr(sys.modules.get("torchmetrics"), "Metric", ())
        self._metrics: list[Any] = [metric for metric in module.modules() if isinstance(metric, kind)]
        for metric in self._metrics:
            metric.dist_sync_fn = _CountedSync(metric.dist_sync_fn, collective)

    def restore(self) -> None:
        """Restore the metrics' own functions."""
        for metric in self._metrics:
            metric.dist_sync_fn = metric.dist_sync_fn.own


class _CountedSync:
    """Function for torchmetrics' `dist_sync_fn`; a copy is the metric's own one."""

    def __init__(self, own: _SyncFunction | None, collective: Callable[..., AbstractContextManager[None]]) -> None:
        self.own = own
        self._collective = collective

    def __call__(self, tensor: Tensor, group: Any | None = None) -> list[Tensor]:
        function: _SyncFunction = self.own or sys.modules["torchmetrics"].utilities.distributed.gather_all_tensors
        with self._collective("metric synchronization", group):
            return function(tensor, group=group)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _same, (self.own,)


def _same(function: _SyncFunction | None) -> _SyncFunction | None:
    return function
