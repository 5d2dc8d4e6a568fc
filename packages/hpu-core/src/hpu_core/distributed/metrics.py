"""Synchronization of torchmetrics' metrics, counted as a collective.

A metric calls `torch.distributed` itself, so a rank that hangs would hold the others in `compute()` unnoticed.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

__all__ = ["WatchedMetrics"]

_SyncFunction = Callable[..., list[Tensor]]


class WatchedMetrics:
    """Metrics of a module that count their synchronization, until `restore` is called.

    Args:
        module: The module; its metrics are submodules, as Lightning wants them.
        collective: Returns the context of a collective, by its name and process group.
    """

    def __init__(self, module: nn.Module, collective: Callable[..., AbstractContextManager[None]]) -> None:
        # A module that has a metric has imported it.
        torchmetrics = sys.modules.get("torchmetrics")
        metrics = (m for m in module.modules() if isinstance(m, torchmetrics.Metric)) if torchmetrics else ()
        self._replaced: list[tuple[Any, _SyncFunction | None]] = [(metric, metric.dist_sync_fn) for metric in metrics]
        for metric, function in self._replaced:
            metric.dist_sync_fn = _CountedSync(function, collective)

    def restore(self) -> None:
        """Restore the metrics' own functions."""
        for metric, function in self._replaced:
            metric.dist_sync_fn = function


class _CountedSync:
    """Function for torchmetrics' `dist_sync_fn`; a copy is the metric's own one."""

    def __init__(self, function: _SyncFunction | None, collective: Callable[..., AbstractContextManager[None]]) -> None:
        self._function = function
        self._collective = collective

    def __call__(self, tensor: Tensor, group: Any | None = None) -> list[Tensor]:
        from torchmetrics.utilities.distributed import gather_all_tensors

        with self._collective("metric synchronization", group):
            return (self._function or gather_all_tensors)(tensor, group=group)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _same, (self._function,)


def _same(function: _SyncFunction | None) -> _SyncFunction | None:
    return function
