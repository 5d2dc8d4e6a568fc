"""Parser for the `devices` argument of a Trainer or Fabric."""

import re

_ALL = -1
_NUMBER = re.compile(r"[0-9]{1,9}")
_RULE = "a positive int (also as text), 'auto', -1 for all cards, or different indices of cards such as [0, 1] or '1,'"


def parse(devices: object) -> int | None:
    """Return the number of devices for `devices`, None for all; see `hpu_core.discovery.parse_devices`."""
    indices = parse_indices(devices)
    if indices is not None:
        return len(indices)
    number = devices
    if isinstance(devices, str):
        text = devices.strip()
        if text == "auto":
            return None
        if not _NUMBER.fullmatch(text.removeprefix("-")):
            raise _error(ValueError, devices)
        number = int(text)
    # bool is a subclass of int.
    if not isinstance(number, int) or isinstance(number, bool):
        raise _error(TypeError, devices)
    if number < 1 and number != _ALL:
        raise _error(ValueError, devices)
    return None if number == _ALL else number


def parse_indices(devices: object) -> tuple[int, ...] | None:
    """Return the indices of cards that `devices` lists, by the rule of Lightning's CUDA accelerator; None for a number.

    The indices must be different ints from 0 on.
    """
    indices = devices
    if isinstance(devices, str) and "," in devices:
        entries = [entry.strip() for entry in devices.split(",") if entry]
        if not all(_NUMBER.fullmatch(entry) for entry in entries):
            raise _error(ValueError, devices)
        indices = [int(entry) for entry in entries]
    if not isinstance(indices, (list, tuple)):
        return None
    numbers = [index for index in indices if isinstance(index, int) and not isinstance(index, bool)]
    if len(numbers) < len(indices):
        raise _error(TypeError, devices)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise _error(ValueError, devices)
    return tuple(numbers)


def _error(kind: type[Exception], devices: object) -> Exception:
    return kind(f"`devices` must be {_RULE}, got {devices!r}")
