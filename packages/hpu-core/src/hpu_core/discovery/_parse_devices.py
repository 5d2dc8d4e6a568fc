"""Parser for the `devices` argument of a Trainer or Fabric."""

import re
from collections.abc import Callable, Sequence

from hpu_core.discovery import _visible_modules

_ALL = -1
_NUMBER = re.compile(r"[0-9]{1,9}")
_RULE = "a positive int (also as text), 'auto', -1 for all cards, or different indices of cards such as [0, 1] or '1,'"


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


def parse_indices(devices: object) -> tuple[int, ...] | None:
    """Return the indices of cards that `devices` lists, by the rule of Lightning's CUDA accelerator; None for a number.

    Args:
        devices: The user's value: a list, or text with a comma.

    Raises:
        TypeError: An entry of the list is not an int.
        ValueError: The list is empty, or has a negative index or the same index twice.
    """
    if isinstance(devices, str) and "," in devices:
        entries = [entry.strip() for entry in devices.split(",") if entry]
        if not all(_NUMBER.fullmatch(entry) for entry in entries):
            raise ValueError(f"`devices` must be {_RULE}, got {devices!r}")
        indices: Sequence[object] = [int(entry) for entry in entries]
    elif isinstance(devices, (list, tuple)):
        indices = devices
    else:
        return None
    numbers = [index for index in indices if isinstance(index, int) and not isinstance(index, bool)]
    if len(numbers) < len(indices):
        raise TypeError(f"`devices` must be {_RULE}, got {devices!r}")
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ValueError(f"`devices` must be {_RULE}, got {devices!r}")
    return tuple(numbers)


def _parse(devices: object) -> int:
    """Return the number of devices, `_ALL` for all."""
    indices = parse_indices(devices)
    if indices is not None:
        return len(indices)
    if isinstance(devices, str):
        return _parse_text(devices)
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
