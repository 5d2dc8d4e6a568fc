"""Op lists as a user wrote them: names in Python, or a text file with one name on each line."""

import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

# No op list is longer: torch has less than 3000 operators. A larger file is something else, perhaps a data set.
_MOST_BYTES: Final = 1 << 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What an error quotes of a line that is no name.
_QUOTED: Final = 40


class OpListError(ValueError):
    """An op list that cannot be used; the text names the file, the line, the rule and what was found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a list.

    Attributes:
        name: The operator, such as "linear".
        place: Where the user wrote it, for errors: "ops_bf16.txt, line 3" or "`bf16_ops`".
    """

    name: str
    place: str


def from_file(path: str | PathLike[str], argument: str) -> list[Entry]:
    """Read a list from a text file: one name on each line; blank lines and what follows a "#" do not count.

    Args:
        path: The file, in UTF-8.
        argument: The argument by which the user passed it, for errors.

    Raises:
        OpListError: There is no such file, it cannot be read, it is no text, or a line is no name.
    """
    entries = []
    for number, line in enumerate(_text(path, argument).split("\n"), start=1):
        name = line.partition("#")[0].strip()
        place = f"{path}, line {number}"
        if name:
            entries.append(_entry(name, place))
    if not entries:
        raise OpListError(
            f"`{argument}` must name at least one op, and {str(path)!r} names none: leave the argument out for the "
            "default list"
        )
    return entries


def from_names(names: Iterable[str], argument: str) -> list[Entry]:
    """Take a list from Python, such as `["linear", "conv2d"]`.

    Args:
        names: The names.
        argument: The argument by which the user passed them, for errors.

    Raises:
        TypeError: `names` is a single string, or something in it is no string.
        OpListError: It is empty, or a string is no name.
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(
            f"`{argument}` must be a collection of op names such as ['linear', 'conv2d'], got {names!r}; a file is "
            f"passed as `{argument.removesuffix('_ops')}_file_path`"
        )
    entries = []
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must hold op names, which are strings, got {name!r}")
        entries.append(_entry(name, f"`{argument}`"))
    if not entries:
        raise OpListError(f"`{argument}` must name at least one op: leave the argument out for the default list")
    return entries


def _entry(name: str, place: str) -> Entry:
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= _QUOTED else f"{name[:_QUOTED]}..."
        raise OpListError(f"{place}: an op list must have one name in each place, such as linear, got {shown!r}")
    return Entry(name, place)


def _text(path: str | PathLike[str], argument: str) -> str:
    data = _bytes(Path(path), argument)
    try:
        # The signature that some editors put first is no part of the first name.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise OpListError(
            f"{path}, line {number}: `{argument}` must be a text file in UTF-8, got the byte {data[error.start]:#04x}"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(path: Path, argument: str) -> bytes:
    """Read a file that may be anything, without waiting for it or filling the memory with it."""
    rule = f"`{argument}` must be a text file with an op name on each line"
    try:
        mode = path.stat().st_mode
        # Opening a pipe would wait for somebody to write to it.
        data = path.read_bytes() if stat.S_ISREG(mode) and path.stat().st_size <= _MOST_BYTES else None
    # A path with a null character is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OpListError(f"{rule}, and {str(path)!r} cannot be read from {str(Path.cwd())!r}: {reason}") from error
    if data is None:
        kind = "a folder" if stat.S_ISDIR(mode) else "larger than 1 MiB" if stat.S_ISREG(mode) else "no regular file"
        raise OpListError(f"{rule}, and {str(path)!r} is {kind}")
    return data
