"""Replacement of names in Lightning's modules."""

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

undo: Final = ExitStack()
"""Callbacks that restore what registration changes in Lightning, called in reverse order by `close`."""

_log = logging.getLogger(__name__)

# By top-level package.
_FRAMEWORKS: Final[Mapping[str, "FrameworkName"]] = {
    "lightning": "lightning",
    "lightning_fabric": "pytorch_lightning",
    "pytorch_lightning": "pytorch_lightning",
}

# Mixin for a subclass of the original, or function called with the original, its framework and its arguments.
Replacement: TypeAlias = type | Callable[..., Any]


def patch(module: ModuleType, replacements: Mapping[str, Replacement]) -> None:
    """Replace the names that a module of Lightning defines, in that module and in all modules that imported them.

    An original that does not fit the known versions stays, and a warning is logged. The version of Lightning itself is
    checked when a Trainer is constructed, because reading it takes longer than all of this.
    """
    framework = framework_of(module)
    for name in vars(module).keys() & replacements.keys():
        original = getattr(module, name)
        try:
            new = make_replacement(original, framework, replacements[name])
        except NotImplementedError as error:
            _log.warning("HPU is not registered with %s: %s", framework, error)
            continue
        _replace(framework, name, original, new)
        undo.callback(_replace, framework, name, new, original)


def framework_of(module: ModuleType) -> "FrameworkName":
    """Return the framework that a module belongs to."""
    return _FRAMEWORKS[_root(module.__name__)]


def make_replacement(original: Any, framework: "FrameworkName", replacement: Replacement) -> Any:
    """Return the object that takes the place of a class or function of Lightning."""
    if isinstance(replacement, type):
        return _subclass(original, framework, replacement)
    return functools.update_wrapper(functools.partial(replacement, original, framework), original)


def _subclass(connector: type, framework: "FrameworkName", mixin: Any) -> type:
    """Return a subclass of a connector that has the name and module of the original.

    A NotImplementedError is raised if the connector lacks a method that the known versions of Lightning have.
    """
    missing = [name for name in mixin.REQUIRED if not callable(getattr(connector, name, None))]
    if missing:
        raise NotImplementedError(
            f"{connector.__name__} has no {', '.join(missing)}, unlike in Lightning 2.0 to 2.6; a newer hpu-core may "
            "support it"
        )

    # `wraps` keeps the signature, which Lightning's tests compare with those of Trainer and Fabric.
    @functools.wraps(vars(connector)["__init__"])
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        super(replacement, self).__init__(*args, **kwargs)  # type: ignore[arg-type] # a class made at run time

    # With the original's name and module, so that a pickled Trainer also loads where nothing is patched.
    namespace = {
        "__doc__": connector.__doc__,
        "__module__": connector.__module__,
        "__qualname__": connector.__qualname__,
        "_framework": framework,
        "__init__": init,
    }
    replacement = type(connector.__name__, (mixin, connector), namespace)
    return replacement


def _replace(framework: "FrameworkName", name: str, old: Any, new: Any) -> None:
    """Replace an object in every module of a framework that has it under `name`.

    Modules have references of their own, such as `trainer.trainer` to the connector.
    """
    for module_name, module in list(sys.modules.items()):
        # sys.modules may hold objects without a `__dict__`.
        if getattr(module, "__dict__", {}).get(name) is old and _FRAMEWORKS.get(_root(module_name)) == framework:
            setattr(module, name, new)


def _root(module: str) -> str:
    return module.partition(".")[0]
