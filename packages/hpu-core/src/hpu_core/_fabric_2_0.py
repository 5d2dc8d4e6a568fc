"""Fabric of Lightning 2.0, which has the precision plugin compute gradients, and the strategy does not hear of it.

Later Fabrics ask the strategy, and that asks the plugin. A strategy that does not hear of it closes no graph in lazy
mode, and does not notice that its ranks wait for each other there.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.fabric.plugins import Precision
    from lightning.fabric.strategies.strategy import Strategy


def tell_of_backward(strategy: "Strategy", precision: "Precision") -> None:
    """Have a strategy asked for gradients by whoever asks its precision plugin.

    Args:
        strategy: Its `backward` asks the plugin in turn.
        precision: The plugin, which gets an attribute.
    """
    vars(precision)["backward"] = _Backward(strategy, precision)


class _Backward:
    """Stands for a plugin's `backward`; a class, so that launchers which spawn processes can send it to them."""

    def __init__(self, strategy: "Strategy", precision: "Precision") -> None:
        self._strategy = strategy
        self._precision = precision
        self._asked_by_strategy = False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._asked_by_strategy:
            type(self._precision).backward(self._precision, *args, **kwargs)
            return
        self._asked_by_strategy = True
        try:
            self._strategy.backward(*args, **kwargs)
        finally:
            self._asked_by_strategy = False
