"""Workaround for Fabric 2.0, whose `backward` calls the precision plugin and not the strategy.

Later versions call the strategy, which calls the plugin. Without that call, a strategy launches no graph after backward
in lazy mode, and does not record that its rank is in a collective.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.fabric.plugins import Precision
    from lightning.fabric.strategies.strategy import Strategy


def route_backward_through_strategy(strategy: "Strategy", precision: "Precision") -> None:
    """Make `precision.backward` call `strategy.backward`.

    Args:
        strategy: Strategy whose `backward` calls the plugin.
        precision: Precision plugin; its attribute `backward` is set.
    """
    vars(precision)["backward"] = _Backward(strategy, precision)


class _Backward:
    """Replacement for a plugin's `backward`. It is a class so that spawning launchers can pickle it."""

    def __init__(self, strategy: "Strategy", precision: "Precision") -> None:
        self._strategy = strategy
        self._precision = precision
        self._in_strategy = False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._in_strategy:
            type(self._precision).backward(self._precision, *args, **kwargs)
            return
        self._in_strategy = True
        try:
            self._strategy.backward(*args, **kwargs)
        finally:
            self._in_strategy = False
