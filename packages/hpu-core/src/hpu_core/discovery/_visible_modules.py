"""HABANA_VISIBLE_MODULES: the cards, by module id, that the processes of this job may use.

The bridge gives the process of local rank i the i-th module of the list and knows at most 8 modules. It checks nothing
before it opens a card, and its own `device_count` ignores the variable; so it is checked here.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from hpu_core.discovery._device import printable

VARIABLE: Final = "HABANA_VISIBLE_MODULES"

_MAX_MODULES = 8

# Plain and short, because the bridge passes the text on as it is: no sign, no space, no leading zero.
_MODULE = re.compile(r"0|[1-9][0-9]?")


class VisibleModulesError(ValueError):
    """HABANA_VISIBLE_MODULES has a value that the bridge cannot honour."""


def from_environment(environ: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """Return the module ids that HABANA_VISIBLE_MODULES allows, in its order; None when it is not set.

    Raises:
        VisibleModulesError: The value is not a list of at most 8 different module ids.
    """
    value = environ.get(VARIABLE)
    if value is None:
        return None
    entries = value.split(",")
    if not all(_MODULE.fullmatch(entry) for entry in entries):
        raise _error(value, "holds something that is no module id")
    if len(set(entries)) < len(entries):
        raise _error(value, "names a module twice, and a card serves one process only")
    if len(entries) > _MAX_MODULES:
        raise _error(value, f"names {len(entries)} modules")
    return tuple(int(entry) for entry in entries)


def text(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return HABANA_VISIBLE_MODULES as it is, made fit to print; None when it is not set."""
    value = environ.get(VARIABLE)
    return None if value is None else printable(value)


def check_present(modules: Sequence[int], present: Sequence[int]) -> None:
    """Check that each of `modules`, which `from_environment` returned, is the module id of a card.

    Args:
        modules: The modules asked for.
        present: The module ids of this machine's cards.

    Raises:
        VisibleModulesError: It names a module that no card has.
    """
    for module in modules:
        if module not in present:
            message = (
                f"{VARIABLE}={','.join(map(str, modules))!r} names module {module}, which no card of this machine has: "
                f"name modules out of {', '.join(map(str, sorted(present)))}, or unset it to use every card"
            )
            raise VisibleModulesError(message)


def _error(value: str, fault: str) -> VisibleModulesError:
    return VisibleModulesError(
        f"{VARIABLE} must be a comma-separated list of 1 to {_MAX_MODULES} different module ids, such as '0,1,2,3', "
        f"got {printable(value)!r}, which {fault}: correct it, or unset it to use every card"
    )
