"""Interpretation of the `strategy` argument on HPU: names, aliases, and instances of Lightning's strategies."""

from typing import Any

from hpu_core import plugins
from hpu_core.registration import _registries


def resolve(strategy: Any, api: plugins.Api) -> Any:
    """Return the `strategy` argument with a name that Lightning's registry of this API has, before Lightning checks it.

    A name whose distribution is not installed is an error. Lightning has its own for names that no strategy has.
    """
    if not isinstance(strategy, str) or _registries.is_registered(strategy.lower(), api):
        return strategy
    # Fabric has fewer names than the Trainer.
    name = plugins.aliases().get(strategy.lower(), strategy)
    error = plugins.missing_strategy_error(name.lower())
    if error is not None:
        raise error
    return name


def for_hpu(strategy: Any, api: plugins.Api) -> Any:
    """Return the strategy to use on HPU for one of Lightning's, by name or instance; others are returned unchanged.

    Raises:
        TypeError: Lightning's class does not support HPU, or the instance is of a user's subclass of one that has
            another class on HPU.
    """
    if isinstance(strategy, str):
        name = plugins.aliases().get(strategy, strategy)
        error = plugins.missing_strategy_error(name)
        if error is not None:
            raise error
        if _registries.is_lightnings_own(name, api):
            raise _unsupported_error(f"strategy {name!r}")
        return name
    kind = _lightning_class(strategy)
    if kind is None or _is_single_hpu(strategy, kind):
        return strategy
    for plugin in plugins.installed().values():
        replacement = plugin.replacements.get(kind.__name__)
        path = None if replacement is None else plugin.strategies[replacement].of(api)
        if path is not None:
            return _replace(strategy, plugins.load(path), kind)
    if kind is not type(strategy) and _missing_error(kind.__name__) is None:
        # What a user's own strategy supports is the user's affair.
        return strategy
    raise _unsupported_error(kind.__name__)


def _replace(strategy: Any, base: Any, kind: type) -> Any:
    """Return the strategy of class `base` for one of Lightning's class `kind`, not set up yet."""
    if isinstance(strategy, base):
        return strategy
    if type(strategy) is not kind:
        name = f"{base.__module__.partition('.')[0]}.{base.__name__}"
        raise TypeError(
            f"`strategy` must derive from {name} on Gaudi, got {type(strategy).__name__}, which derives from "
            f"Lightning's {kind.__name__}: write `class {type(strategy).__name__}({name})`"
        )
    return base.from_lightning(strategy)


def _lightning_class(strategy: Any) -> type | None:
    """Return Lightning's class that a strategy is of or derives from; None for the strategies of these packages."""
    kinds = [(kind.__module__.partition(".")[0], kind) for kind in type(strategy).__mro__]
    # Every strategy of these packages derives from a class of hpu_core, whose import here would be a cycle.
    if any(package == "hpu_core" for package, _ in kinds):
        return None
    return next((kind for package, kind in kinds if package in _registries.LIGHTNING), None)


def _is_single_hpu(strategy: Any, kind: type) -> bool:
    """Return whether the strategy is Lightning's for a single device, and the device an HPU; Fabric trains with it."""
    return kind.__name__ == "SingleDeviceStrategy" and strategy.root_device.type == "hpu"


def _missing_error(kind: str) -> Exception | None:
    return plugins.missing_strategy_error(kind.removesuffix("Strategy").lower())


def _unsupported_error(kind: str) -> Exception:
    error = _missing_error(kind)
    if error is not None:
        return error
    names = ["hpu_single", *(name for plugin in plugins.installed().values() for name in plugin.replacements.values())]
    return TypeError(
        f"`strategy` must support Gaudi cards, got Lightning's {kind}, which does not: pass "
        f"{' or '.join(f'`strategy={name!r}`' for name in names)}"
    )
