"""Incremental JSON reader: the members of a trace's top level one by one, and the events of its list one by one.

Python's own decoder reads the events of one buffer at a time, so a file of any size needs the memory of one buffer.
`json.load` needs five times the size of the file.
"""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK_SIZE: Final = 1 << 22
_SPACE: Final = " \t\r\n"
_DELIMITERS: Final = frozenset(",:]} \t\r\n")
_SPACE_RE: Final = re.compile(r"[ \t\r\n]*")
_OBJECT_RE: Final = re.compile(r"[ \t\r\n]*\{")
#: Negative duration as Kineto of torch 2.13 writes it, with a sign before the fraction as well.
_SIGNED_FRACTION_RE: Final = re.compile(r"(:\s*-\d+)\.-(\d+)")


class JsonError(ValueError):
    """Error for text that is not JSON, or ends too early."""


class JsonStream:
    """Reader of one JSON value.

    Args:
        file: Text file to read from.
        progress: Called with the number of characters that were read, for each chunk.
    """

    def __init__(self, file: IO[str], progress: Callable[[int], object] | None = None) -> None:
        self._file = file
        self._progress = progress
        self._read = 0
        self._buffer = ""
        self._position = 0
        self._is_divisible = True
        self._decode = json.JSONDecoder().raw_decode
        self._decode_list = json.JSONDecoder().decode

    def peek(self) -> str:
        """Return the next character that is not space, without consuming it; empty at the end of the file."""
        while True:
            match = _SPACE_RE.match(self._buffer, self._position)
            self._position = match.end() if match else self._position
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._fill():
                return ""

    def members(self) -> Iterator[str]:
        """Yield the key of each member of an object; the caller consumes its value before the next key."""
        self._expect("{")
        while self.peek() != "}":
            key = self.value()
            self._expect(":")
            yield str(key)
            self._skip_comma("}")
        self._expect("}")

    def items(self) -> Iterator[Any]:
        """Yield each value of a list."""
        self._expect("[")
        while self.peek() != "]":
            yield from self._buffered_objects()
            if self.peek() == "]":
                break
            yield self.value()
            self._skip_comma("]")
        self._expect("]")

    def _buffered_objects(self) -> list[Any]:
        """Consume and return the objects in the buffer that a comma follows; none if they cannot be told apart."""
        if not self._is_divisible:
            return []
        # The text up to here is a list of complete objects, unless this is within an object or a string. Then the
        # decoder fails, because a bracket or a quotation mark lacks its partner.
        end = self._buffer.rfind("},", self._position)
        while end >= 0 and _OBJECT_RE.match(self._buffer, end + 2) is None:
            # An object within an event, as the arguments are in the bridge's order of keys.
            end = self._buffer.rfind("},", self._position, end)
        if end < 0:
            return []
        try:
            objects: list[Any] = self._decode_list(f"[{self._buffer[self._position : end + 1]}]")
        except json.JSONDecodeError:
            self._is_divisible = False
            return []
        self._position = end + 2
        return objects

    def value(self) -> Any:
        """Consume and return the next value."""
        while True:
            # The position is after a comma or a colon, and most writers put space there.
            if self._buffer[self._position : self._position + 1] in _SPACE:
                self.peek()
            try:
                value, end = self._decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                if not self._fill():
                    raise JsonError(error.msg) from error
                continue
            # A number at the end of the buffer, such as "1" or "1.", may go on in the next chunk.
            if self._buffer[end : end + 1] in _DELIMITERS or not self._fill():
                self._position = end
                return value

    def _skip_comma(self, end: str) -> None:
        if self._buffer[self._position : self._position + 1] == "," or self.peek() == ",":
            self._position += 1
        elif self.peek() != end:
            raise JsonError(f"Expecting ',' or {end!r}, got {self.peek() or 'the end of the file'!r}")

    def _expect(self, character: str) -> None:
        if self.peek() != character:
            raise JsonError(f"Expecting {character!r}, got {self.peek() or 'the end of the file'!r}")
        self._position += 1

    def _fill(self) -> bool:
        """Append a chunk to the buffer; return whether the file had one."""
        # A value longer than the buffer is decoded again after each chunk, so chunks grow with it.
        rest = self._buffer[self._position :]
        chunk = self._file.read(max(_CHUNK_SIZE, len(rest)))
        self._buffer, self._position, self._is_divisible = rest + chunk, 0, True
        self._read += len(chunk)
        if self._progress is not None:
            self._progress(self._read)
        if ".-" in self._buffer:
            self._buffer = _SIGNED_FRACTION_RE.sub(r"\1.\2", self._buffer)
        return bool(chunk)
