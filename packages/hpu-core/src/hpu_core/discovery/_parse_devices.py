"""Parser for the `devices` argument of a Trainer or Fabric."""

import re

_ALL = -1
_NUMBER = re.compile(r"[0-9]{1,9}")
_RULE = "a positive int (also as text), 'auto', -1 for all cards, or different indices of cards such as [0, 1] or '1,'"


def parse(devices: object) -> int | None:
    """Return the number of devices for `devices`, None for all; see `hpu_core.discovery.parse_devices`.

    Raises:
        TypeError: `devices` has an invalid type.
        ValueError: `devices` has an invalid value.
    """
    indices = parse_indices(devices)
    if indices is not None:
        return len(indices)
    number = devices
    if isinstance(devices, str):
        text = devices.strip()
        if text == "auto":
            return None
        if not _NUMBER.fullmatch(text.removeprefix("-")):
            raise ValueError(f"`devices` must be {_RULE}, got {devices!r}")
        number = int(text)
    # bool is a subclass of int.
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"`devices` must be {_RULE}, got {devices!r}")
    if number < 1 and number != _ALL:
        raise ValueError(f"`devices` must be {_RULE}, got {devices!r}")
    return None if number == _ALL else number


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
        indices: list[object] | tuple[object, ...] = [int(entry) for entry in entries]
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
