"""Parser for op lists: names in Python, or a text file with one name per line."""

import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

# torch has fewer than 3000 operators, so a larger file is not an op list.
_MAX_BYTES: Final = 1 << 20

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
    data = _read_bytes(Path(path), argument)
    try:
        # Some editors start a file with a byte order mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise OpListError(
            f"{path}, line {number}: `{argument}` must be a text file in UTF-8, got the byte {data[error.start]:#04x}"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_bytes(path: Path, argument: str) -> bytes:
    """Read a small regular file; a pipe would block and a large file would fill the memory."""
    rule = f"`{argument}` must be a text file with one op name per line"
    try:
        mode = path.stat().st_mode
        data = path.read_bytes() if stat.S_ISREG(mode) and path.stat().st_size <= _MAX_BYTES else None
    # A null character in a path raises ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OpListError(f"{rule}, cannot read {str(path)!r} from {str(Path.cwd())!r}: {reason}") from error
    if data is None:
        kind = "a directory" if stat.S_ISDIR(mode) else "over 1 MiB" if stat.S_ISREG(mode) else "not a regular file"
        raise OpListError(f"{rule}, got {str(path)!r}, which is {kind}")
    return data
