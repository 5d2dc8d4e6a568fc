"""The names of accelerator and strategies in Lightning's registries."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hpu_core import frameworks

if TYPE_CHECKING:
    from hpu_core.registration._connectors import Half

# What the registries held before, by registry and name; None for nothing.
_before: Final[list[tuple[dict[str, Any], str, Any]]] = []
_filled: Final[set["Half"]] = set()

_SINGLE: Final[dict["Half", str]] = {
    "pytorch": "hpu_core.strategy:SingleHPUStrategy",
    "fabric": "hpu_core.fabric:FabricSingleHPUStrategy",
}


def fill(half: "Half") -> None:
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
    _register(strategies, "hpu_single", maker(_SINGLE[half]), "one Gaudi card")
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


def maker(target: str) -> Callable[..., Any]:
    """Return a function that imports a class when it is first needed and makes an instance of it.

    Args:
        target: "module:Class".
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        return load(target)(*args, **kwargs)

    return make


def load(target: str) -> Any:
    """Import what "module:name" stands for."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _registries(half: "Half") -> tuple[Any, Any]:
    """Return Lightning's registries of accelerators and of strategies."""
    framework = frameworks.current()
    if half == "fabric":
        return framework.fabric("accelerators").ACCELERATOR_REGISTRY, framework.fabric("strategies").STRATEGY_REGISTRY
    return framework.pytorch("accelerators").AcceleratorRegistry, framework.pytorch("strategies").StrategyRegistry


def _register(registry: Any, name: str, make: Callable[..., Any], description: str, **options: Any) -> None:
    # Lightning's own `get` makes an instance.
    _before.append((registry, name, dict.get(registry, name)))
    registry.register(name, make, description=description, override=True, **options)
