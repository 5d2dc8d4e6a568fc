"""Interpretation of the `strategy` argument on HPU: names, aliases, typos, and instances of Lightning's strategies.

An instance may be of a user's subclass. Its `class Strategy(DDPStrategy)` becomes `class Strategy(Strategy,
HPUDDPStrategy)`: the user's methods override ours, and their `super()` calls reach ours before Lightning's.
"""

import functools
import inspect
from typing import Any

from hpu_core import plugins
from hpu_core.registration import _hints, _registries


def resolve(strategy: Any, api: plugins.Api) -> Any:
    """Return the `strategy` argument with a name that Lightning's registry of this API has, before Lightning checks it.

    A name that no strategy has is an error, and one whose distribution is not installed is another.
    """
    if not isinstance(strategy, str) or strategy.lower() == "auto":
        return strategy
    known = _registries.strategy_names(api)
    name = strategy.lower()
    if name in known:
        return strategy
    # Fabric has fewer names than the Trainer.
    alias = plugins.aliases().get(name)
    if alias is not None:
        return alias
    error = plugins.missing_strategy_error(name)
    if error is not None:
        raise error
    hint = _hints.did_you_mean(name, known) or "pass 'auto', 'hpu_single', 'hpu_ddp' or 'hpu_deepspeed'"
    raise ValueError(f"`strategy` must be the name of a registered strategy, got {strategy!r}: {hint}")


def for_hpu(strategy: Any, api: plugins.Api) -> Any:
    """Return the strategy to use on HPU for one of Lightning's, by name or instance; others are returned unchanged.

    An instance of a user's subclass of one of Lightning's stays the same object, and derives from ours afterwards. If
    it cannot, or Lightning's class does not support HPU, that is a TypeError.
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
            return replace(strategy, plugins.load(path), kind)
    if kind is not type(strategy) and _missing_error(kind.__name__) is None:
        # What a user's own strategy supports is the user's affair.
        return strategy
    raise _unsupported_error(kind.__name__)


def replace(strategy: Any, base: Any, kind: type) -> Any:
    """Return the strategy for HPU, of class `base`, that replaces one of Lightning's class `kind`, not set up yet.

    An instance of a user's subclass is changed in place, because the program may keep it.
    """
    if isinstance(strategy, base):
        return strategy
    users: Any = type(strategy)
    if users is kind:
        return base.from_lightning(strategy)
    subclass = _derive(users, base)
    attributes = vars(subclass.from_lightning(strategy))
    arguments = {*inspect.signature(base).parameters, getattr(base, "wrapper_arguments", "").removeprefix("_")}
    # The subclass may have set attributes of Lightning's. Those of arguments are in the new instance already, as the
    # classes for HPU keep them.
    kept = {name: value for name, value in vars(strategy).items() if name.removeprefix("_") not in arguments}
    strategy.__class__ = subclass
    vars(strategy).update({**attributes, **kept})
    return strategy


@functools.cache
def _derive(kind: type, base: Any) -> Any:
    """Return the subclass of a user's class and the one for HPU; its constructor is the latter's."""
    namespace = {
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__init__": base.__init__,
        # By the classes that can be imported, for a launcher that pickles the Trainer.
        "__reduce__": lambda self: (_make, (kind, base), vars(self)),
    }
    try:
        return type(kind.__name__, (kind, base), namespace)
    except TypeError as error:
        raise TypeError(
            f"`strategy` must derive from {base.__name__} on Gaudi, got {kind.__name__}, which cannot: derive it from "
            f"`{base.__module__.partition('.')[0]}.{base.__name__}` instead of Lightning's strategy ({error})"
        ) from error


def _make(kind: type, base: Any) -> Any:
    subclass = _derive(kind, base)
    return subclass.__new__(subclass)


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
