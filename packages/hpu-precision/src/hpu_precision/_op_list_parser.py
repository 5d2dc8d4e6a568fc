"""Parser for op lists: names in Python, or a text file with one name per line."""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path


class OpListError(ValueError):
    """Invalid op list; the message names the file, the line, the rule and the value."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of an op list.

    Attributes:
        name: The operator, such as "linear".
        location: Where the user wrote it, for errors: "ops_bf16.txt, line 3" or "`bf16_ops`".
    """

    name: str
    location: str


def parse_file(path: str | PathLike[str], argument: str) -> list[Entry]:
    """Parse a text file with one name per line; blank lines and text after "#" are ignored.

    Raises:
        OSError: The file cannot be read.
        OpListError: It has no name.
    """
    # Some editors start a file with a byte order mark. A name that is not UTF-8 is an unknown one.
    lines = Path(path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    names = [(line.partition("#")[0].strip(), number) for number, line in enumerate(lines, start=1)]
    return _not_empty([Entry(name, f"{path}, line {number}") for name, number in names if name], argument)


def parse_names(names: Iterable[str], argument: str) -> list[Entry]:
    """Parse a list of names in Python, such as `["linear", "conv2d"]`.

    Raises:
        TypeError: `names` is a string.
        OpListError: The list is empty.
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(
            f"`{argument}` must be a collection of op names such as ['linear', 'conv2d'], got {names!r}: pass a file "
            f"as `{argument.removesuffix('_ops')}_file_path`"
        )
    return _not_empty([Entry(name, f"`{argument}`") for name in names], argument)


def _not_empty(entries: list[Entry], argument: str) -> list[Entry]:
    if not entries:
        raise OpListError(f"`{argument}` must name at least one op: leave the argument out for the default list")
    return entries
