"""The names of accelerator and strategies in Lightning's registries."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hpu_core import frameworks
from hpu_core.registration import plugins

if TYPE_CHECKING:
    from hpu_core.registration.plugins import Api

# What the registries held before, by registry and name; None for nothing.
_before: Final[list[tuple[dict[str, Any], str, Any]]] = []
_filled: Final[set["Api"]] = set()

_SINGLE: Final = plugins.ClassPaths("hpu_core.strategy:SingleHPUStrategy", "hpu_core.fabric:FabricSingleHPUStrategy")


def fill(half: "Api") -> None:
    """Register the accelerator and the strategies, once: what a program registers in their place later stays.

    Lightning 2.0 brings classes of these names along, which ours replace.

    Args:
        half: "pytorch" for the Trainer's registries, "fabric" for Fabric's.
    """
    if half in _filled:
        return
    from hpu_core.accelerator import HPUAccelerator

    accelerators, strategies = _registries(half)
    _register(accelerators, "hpu", HPUAccelerator, HPUAccelerator.__name__)
    offers = {"hpu_single": _SINGLE}
    for plugin in plugins.installed().values():
        offers.update(plugin.strategies)
    for name, classes in offers.items():
        target = classes.of(half)
        if target is not None:
            _register(strategies, name, functools.partial(_make, target), target, **classes.options)
    _filled.add(half)


def undo() -> None:
    """Put the registries back as they were."""
    while _before:
        registry, name, entry = _before.pop()
        if entry is None:
            registry.pop(name, None)
        else:
            registry[name] = entry
    _filled.clear()


def _make(target: str, **options: Any) -> Any:
    """Import a class, which nobody has needed before, and make an instance of it."""
    return plugins.load(target)(**options)


def _registries(half: "Api") -> tuple[Any, Any]:
    """Return Lightning's registries of accelerators and of strategies."""
    framework = frameworks.current()
    if half == "fabric":
        return framework.fabric("accelerators").ACCELERATOR_REGISTRY, framework.fabric("strategies").STRATEGY_REGISTRY
    return framework.pytorch("accelerators").AcceleratorRegistry, framework.pytorch("strategies").StrategyRegistry


def _register(registry: Any, name: str, make: Callable[..., Any], description: str, **options: Any) -> None:
    # Lightning's own `get` makes an instance.
    _before.append((registry, name, dict.get(registry, name)))
    registry.register(name, make, description=description, override=True, **options)
