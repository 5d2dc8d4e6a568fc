"""Replacement of Lightning's strategies by those for HPU, also of instances of users' subclasses.

A user's `class Strategy(DDPStrategy)` becomes `class Strategy(Strategy, HPUDDPStrategy)`: the user's methods override
ours, and their `super()` calls reach ours before Lightning's.
"""

import functools
from typing import Any


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
    arguments = vars(subclass.from_lightning(strategy))
    strategy.__class__ = subclass
    vars(strategy).update(arguments)
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
