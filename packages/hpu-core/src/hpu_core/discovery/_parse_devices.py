"""Parser for the `devices` argument of a Trainer or Fabric."""

import re
from collections.abc import Callable, Sequence

from hpu_core.discovery import _visible_modules

_ALL = -1
_NUMBER = re.compile(r"[0-9]{1,9}")
_RULE = "a positive int (also as text), 'auto', -1 for all cards, or the list [0, 1, ..., n-1] for n cards"


def parse(devices: object, *, count_all: Callable[[], int]) -> int:
    """Return the number of devices for `devices`; see `hpu_core.discovery.parse_devices`.

    Args:
        devices: The user's value.
        count_all: Returns the number of devices that can be used; raises an error if there is none.

    Raises:
        TypeError: `devices` has an invalid type.
        ValueError: `devices` has an invalid value.
    """
    number = _parse(devices)
    return count_all() if number == _ALL else number


def check(number: int, *, available: int) -> None:
    """Raise an error if there are too few devices; see `hpu_core.discovery.check_devices`.

    Args:
        number: Number of devices to use.
        available: Number of devices that can be used; 0 if discovery finds none, which disables the check.

    Raises:
        ValueError: There are too few.
    """
    if available and number > available:
        modules = _visible_modules.text()
        limit = "" if modules is None else f" with {_visible_modules.VARIABLE}={modules!r}"
        raise ValueError(
            f"`devices` must be at most {available}, the number of cards that can be used here{limit}, got {number}"
        )


def _parse(devices: object) -> int:
    """Return the number of devices, `_ALL` for all."""
    if isinstance(devices, str):
        return _parse_text(devices)
    if isinstance(devices, (list, tuple)):
        return _parse_indices(devices)
    # bool is a subclass of int.
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise TypeError(f"`devices` must be {_RULE}, got {devices!r}")
    return _validate(devices, devices)


def _parse_text(text: str) -> int:
    stripped = text.strip()
    if stripped in {"auto", str(_ALL)}:
        return _ALL
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"`devices` must be {_RULE}, got {text!r}")
    return _validate(int(stripped), text)


def _validate(number: int, devices: object) -> int:
    if number < 1 and number != _ALL:
        raise ValueError(f"`devices` must be {_RULE}, got {devices!r}")
    return number


def _parse_indices(indices: Sequence[object]) -> int:
    """Return the number of devices for a list of indices.

    Only [0, 1, ..., n-1] is valid, and means n. HABANA_VISIBLE_MODULES and the local rank select the device of a
    process, so any other list would train on other devices than it names.
    """
    for index in indices:
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"`devices` must be {_RULE}, got {indices!r}")
    if not indices or list(indices) != list(range(len(indices))):
        raise ValueError(
            f"`devices` must be {_RULE}, got {indices!r}. To select cards, set HABANA_VISIBLE_MODULES to their module "
            "ids (`hpu-info` shows them) before the program starts, and pass their number"
        )
    return len(indices)
