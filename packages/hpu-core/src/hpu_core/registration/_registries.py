"""Entries of hpu-core and its plugins in Lightning's accelerator and strategy registries."""

import functools
from typing import Any, Final

from hpu_core import frameworks, plugins
from hpu_core.registration import _patch

# By path, like a plugin's classes: it derives from Lightning's, and is imported when it is needed.
ACCELERATOR: Final = "hpu_core.accelerator:HPUAccelerator"

# Packages whose strategies are Lightning's own.
LIGHTNING: Final = frozenset({"lightning", "lightning_fabric", "pytorch_lightning"})

_registered: Final[set[plugins.Api]] = set()


def register_all(api: plugins.Api) -> None:
    """Register the accelerator and all strategies once; entries that a program registers later stay.

    Lightning 2.0 has entries of the same names, which are replaced.
    """
    if api in _registered:
        return
    accelerators, strategies = _registries(api)
    # The class itself: Lightning calls its static methods.
    _register(accelerators, "hpu", plugins.load(ACCELERATOR), ACCELERATOR)
    for name, paths in plugins.strategies().items():
        path = paths.of(api)
        if path is not None:
            _register(strategies, name, functools.partial(_construct, path), path, **paths.options)
    _registered.add(api)
    _patch.undo.callback(_registered.remove, api)


def is_registered(name: str, api: plugins.Api) -> bool:
    """Return whether one of Lightning's APIs has a strategy of this name."""
    return name in _registries(api)[1]


def is_lightnings_own(name: str, api: plugins.Api) -> bool:
    """Return whether a name is that of a strategy of Lightning's, which does not support HPU."""
    entry = dict.get(_registries(api)[1], name)
    return entry is not None and entry["strategy"].__module__.partition(".")[0] in LIGHTNING


def _registries(api: plugins.Api) -> tuple[Any, Any]:
    """Return Lightning's accelerator registry and strategy registry."""
    framework = frameworks.current()
    if api == "fabric":
        return framework.fabric("accelerators").ACCELERATOR_REGISTRY, framework.fabric("strategies").STRATEGY_REGISTRY
    return framework.pytorch("accelerators").AcceleratorRegistry, framework.pytorch("strategies").StrategyRegistry


def _register(registry: Any, name: str, factory: Any, description: str, **options: Any) -> None:
    # dict's methods, because the registry's own `get` constructs an instance.
    if name in registry:
        _patch.undo.callback(dict.__setitem__, registry, name, dict.__getitem__(registry, name))
    else:
        _patch.undo.callback(dict.pop, registry, name, None)
    registry.register(name, factory, description=description, override=True, **options)


def _construct(path: str, **options: Any) -> Any:
    return plugins.load(path)(**options)
