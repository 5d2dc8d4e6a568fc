"""What `devices` of a Trainer means on Gaudi: a number of cards, and nothing else."""

import re
from collections.abc import Callable, Sequence

from hpu_core.discovery import _visible_modules

_ALL = -1
_NUMBER = re.compile(r"[0-9]{1,9}")
_ACCEPTED = "a positive int (also as text), 'auto', -1 for every card, or the list [0, 1, ..., n-1] for n cards"


def parse(devices: object, *, every: Callable[[], int]) -> int:
    """Return the number of cards that `devices` asks for; see `hpu_core.discovery.parse_devices`.

    Args:
        devices: The user's value.
        every: Returns how many cards can be used, and raises when there is none.

    Raises:
        TypeError: `devices` is of a type that never stands for cards.
        ValueError: `devices` has a value that cannot be honoured.
    """
    number = _number(devices)
    return every() if number == _ALL else number


def check(number: int, *, present: int) -> None:
    """Refuse more cards than there are; see `hpu_core.discovery.check_devices`.

    Args:
        number: How many cards are asked for.
        present: How many can be used, 0 when discovery knows of none and so cannot tell.

    Raises:
        ValueError: There are not so many.
    """
    if present and number > present:
        modules = _visible_modules.text()
        limit = "" if modules is None else f" with {_visible_modules.VARIABLE}={modules!r}"
        raise ValueError(
            f"`devices` must be at most {present}, the number of cards that can be used here{limit}, got {number}"
        )


def _number(devices: object) -> int:
    """Return the number of cards asked for, `_ALL` for every one."""
    if isinstance(devices, str):
        return _from_text(devices)
    if isinstance(devices, (list, tuple)):
        return _from_indices(devices)
    # True is an int to Python, and no number of cards to anybody.
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise TypeError(f"`devices` must be {_ACCEPTED}, got {devices!r}")
    return _checked(devices, devices)


def _from_text(text: str) -> int:
    stripped = text.strip()
    if stripped in {"auto", str(_ALL)}:
        return _ALL
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"`devices` must be {_ACCEPTED}, got {text!r}")
    return _checked(int(stripped), text)


def _checked(number: int, devices: object) -> int:
    if number < 1 and number != _ALL:
        raise ValueError(f"`devices` must be {_ACCEPTED}, got {devices!r}")
    return number


def _from_indices(indices: Sequence[object]) -> int:
    """Return how many cards a list of indices asks for.

    Only [0, 1, ..., n-1] can be honoured, and means n. A process is given its card by HABANA_VISIBLE_MODULES and its
    local rank, never by an index in the code, so any other list would train on other cards than it names.
    """
    for index in indices:
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"`devices` must be {_ACCEPTED}, got {indices!r}")
    if not indices or list(indices) != list(range(len(indices))):
        raise ValueError(
            f"`devices` must be {_ACCEPTED}, got {indices!r}. To choose certain cards, set HABANA_VISIBLE_MODULES to "
            "their module ids (`hpu-info` shows them) before the program starts, and pass how many they are"
        )
    return len(indices)
