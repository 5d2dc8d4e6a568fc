"""Parser for op lists: names in Python, or a text file with one name per line."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Characters of an invalid line to quote in an error.
_MAX_QUOTED: Final = 40


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
        OpListError: The file is missing, unreadable, not a text file, or has an invalid line.
    """
    entries = []
    for number, line in enumerate(_read_text(path, argument).split("\n"), start=1):
        name = line.partition("#")[0].strip()
        if name:
            entries.append(_parse_entry(name, f"{path}, line {number}"))
    if not entries:
        raise OpListError(
            f"`{argument}` must name at least one op, got {str(path)!r}, which is empty: leave the argument out for "
            "the default list"
        )
    return entries


def parse_names(names: Iterable[str], argument: str) -> list[Entry]:
    """Parse a list of names in Python, such as `["linear", "conv2d"]`.

    Raises:
        TypeError: `names` is a string, or one of its items is not.
        OpListError: The list is empty, or a name is invalid.
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(
            f"`{argument}` must be a collection of op names such as ['linear', 'conv2d'], got {names!r}: pass a file "
            f"as `{argument.removesuffix('_ops')}_file_path`"
        )
    entries = []
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must contain op names, which are strings, got {name!r}")
        entries.append(_parse_entry(name, f"`{argument}`"))
    if not entries:
        raise OpListError(f"`{argument}` must name at least one op: leave the argument out for the default list")
    return entries


def _parse_entry(name: str, location: str) -> Entry:
    if not _NAME.fullmatch(name):
        quoted = name if len(name) <= _MAX_QUOTED else f"{name[:_MAX_QUOTED]}..."
        raise OpListError(f"{location}: an op list must have one name per line, such as linear, got {quoted!r}")
    return Entry(name, location)


def _read_text(path: str | PathLike[str], argument: str) -> str:
    try:
        # Some editors start a file with a byte order mark.
        return Path(path).read_text(encoding="utf-8-sig")
    # Bytes that are not UTF-8 and a null character in a path raise ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OpListError(
            f"`{argument}` must be a text file in UTF-8 with one op name per line, cannot read {str(path)!r} from "
            f"{str(Path.cwd())!r}: {reason}"
        ) from error
