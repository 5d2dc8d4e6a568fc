"""Arguments of the strategies' constructors and of Lightning's methods."""

import inspect
from collections.abc import Callable
from typing import Any, Final

from hpu_core import frameworks

# Those that only newer Lightning has, with their defaults.
_NEW: Final = {"exclude_frozen_parameters": False, "filter": None, "strict": True, "weights_only": None}


def constructor_arguments(cls: Any, strategy: Any) -> dict[str, Any]:
    """Return the arguments of a class that Lightning's strategy, not set up yet, has as attributes, private or not."""
    names, attributes = inspect.signature(cls).parameters.keys() - {"kwargs"}, vars(strategy)
    arguments = {name: attributes[key] for name in names for key in (f"_{name}", name) if key in attributes}
    keywords: dict[str, Any] = attributes.get(cls.wrapper_arguments, {})
    return arguments | keywords


def supported_arguments(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return the arguments without the new ones that the installed Lightning does not have.

    Args:
        function: Lightning's method or class.
        **arguments: Arguments to pass to it.

    Raises:
        TypeError: A new argument that it does not have is set to another value than its default.
    """
    unsupported = _NEW.keys() & arguments.keys() - inspect.signature(function).parameters.keys()
    for name in sorted(unsupported):
        if arguments[name] != _NEW[name]:
            version = frameworks.current().version
            raise TypeError(f"`{name}` is not supported by Lightning {version}: upgrade Lightning or leave it out")
    return {name: value for name, value in arguments.items() if name not in unsupported}
