"""Profilers by name: `Trainer(profiler="hpu")`. Lightning's own table of profilers is local to a function."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_core import frameworks, plugins

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName


def init_profiler(original: Callable[..., None], framework: "FrameworkName") -> Callable[..., None]:
    """Return a replacement for Lightning's `_init_profiler` that supports the profilers of plugins.

    Args:
        original: Lightning's function.
        framework: The framework that it belongs to.
    """

    @functools.wraps(original)
    def wrapper(trainer: Any, profiler: Any) -> None:
        if isinstance(profiler, str):
            path = _path_of(profiler.lower())
            if path is not None:
                frameworks.ensure_usable(framework)
                profiler = plugins.load(path)()
        original(trainer, profiler)

    return wrapper


def _path_of(name: str) -> str | None:
    """Return the import path of a plugin's profiler, None for one of Lightning's own.

    Raises:
        ModuleNotFoundError: The distribution of the profiler is not installed.
    """
    for plugin in plugins.installed().values():
        if name in plugin.profilers:
            return plugin.profilers[name]
    if name == "hpu":
        raise plugins.not_installed_error("`profiler='hpu'`", "hpu-profiler")
    return None
