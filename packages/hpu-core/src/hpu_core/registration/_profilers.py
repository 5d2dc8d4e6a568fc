"""Profilers by name: `Trainer(profiler="hpu")`, which Lightning takes from a table inside a function."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_core.registration import _connectors, plugins

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName


def initializer(original: Callable[..., None], framework: "FrameworkName") -> Callable[..., None]:
    """Return a function that knows the profilers of plugins, for Lightning's `_init_profiler`.

    Args:
        original: Lightning's.
        framework: Whose it is.
    """

    @functools.wraps(original)
    def init_profiler(trainer: Any, profiler: Any) -> None:
        if isinstance(profiler, str):
            target = _target(profiler.lower())
            if target is not None:
                _connectors.check(framework)
                profiler = plugins.load(target)()
        original(trainer, profiler)

    return init_profiler


def _target(name: str) -> str | None:
    """Return where the profiler of a name is; None for one of Lightning's own.

    Raises:
        ModuleNotFoundError: It is ours, and the distribution that offers it is not installed.
    """
    for plugin in plugins.installed().values():
        if name in plugin.profilers:
            return plugin.profilers[name]
    if name == "hpu":
        raise plugins.not_installed("`profiler='hpu'`", "hpu-profiler")
    return None
