"""Synchronization of torchmetrics' metrics, counted as a collective.

A metric calls `torch.distributed` itself, so a rank that hangs would hold the others in `compute()` unnoticed.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

__all__ = ["CountedMetrics"]

_SyncFunction = Callable[..., list[Tensor]]


class CountedMetrics:
    """Metrics of a module that count their synchronization, until `restore` is called.

    Args:
        module: The module; its metrics are submodules, as Lightning wants them.
        collective: Returns the context of a collective, by its name and process group.
    """

    def __init__(self, module: nn.Module, collective: Callable[..., AbstractContextManager[None]]) -> None:
        self._replaced: list[tuple[Any, _SyncFunction | None]] = []
        # A module that has a metric has imported it, and hpu-core does not require it.
        torchmetrics = sys.modules.get("torchmetrics")
        if torchmetrics is None:
            return
        default = torchmetrics.utilities.distributed.gather_all_tensors
        for metric in module.modules():
            if isinstance(metric, torchmetrics.Metric):
                self._replaced.append((metric, metric.dist_sync_fn))
                metric.dist_sync_fn = _CountedSync(metric.dist_sync_fn, default, collective)

    def restore(self) -> None:
        """Restore the metrics' own functions."""
        for metric, function in self._replaced:
            metric.dist_sync_fn = function


class _CountedSync:
    """Function for torchmetrics' `dist_sync_fn`; a copy is the metric's own one."""

    def __init__(
        self,
        own: _SyncFunction | None,
        default: _SyncFunction,
        collective: Callable[..., AbstractContextManager[None]],
    ) -> None:
        self._own = own
        self._function = own or default
        self._collective = collective

    def __call__(self, tensor: Tensor, group: Any | None = None) -> list[Tensor]:
        with self._collective("metric synchronization", group):
            return self._function(tensor, group=group)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _same, (self._own,)


def _same(function: _SyncFunction | None) -> _SyncFunction | None:
    return function
