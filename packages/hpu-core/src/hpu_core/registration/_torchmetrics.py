"""Metrics of torchmetrics outside of the casts of mixed precision.

Lightning's values of `self.log` are such metrics as well.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from hpu_core import casts
from hpu_core.registration import _patch

MODULE: Final = "torchmetrics.metric"
"""Module that defines the base class."""


def patch(module: ModuleType) -> None:
    """Let metrics, constructed or unpickled from now on, update, compute and reduce their states without casts."""
    metric = module.Metric
    replacements: dict[str, Any] = {name: _wrapping(vars(metric)[name]) for name in ("__init__", "__setstate__")}
    # `forward` merges the states of a batch into those before it.
    if "_reduce_states" in vars(metric):
        replacements["_reduce_states"] = casts.without(vars(metric)["_reduce_states"])
    for name, replacement in replacements.items():
        _patch.undo.callback(setattr, metric, name, vars(metric)[name])
        setattr(metric, name, replacement)


def _wrapping(method: Callable[..., None]) -> Callable[..., None]:
    """Return a method that sets an instance's `update` and `compute`, which then run without casts."""

    @functools.wraps(method)
    def call(metric: Any, *args: Any, **kwargs: Any) -> None:
        method(metric, *args, **kwargs)
        metric.update, metric.compute = casts.without(metric.update), casts.without(metric.compute)

    return call
