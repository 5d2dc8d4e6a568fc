"""Parts of a file that is too large for one pass: each has some of the steps, and leaves out the text of the others.

Writers put events of one lane, or of host and card, after another. So each part needs text from several places.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpu_profiler.trace.intervals import Interval

_CHUNK_SIZE: Final = 1 << 22
#: Comma between two events. No text within an event has an unescaped quotation mark after a brace.
_BETWEEN_EVENTS_RE: Final = re.compile(rb'\},\s*(?=\{\s*"(?:args|bp|cat|dur|id|name|ph|pid|s|tid|ts)"\s*:)')
_METADATA: Final = (b'"ph":"M"', b'"ph": "M"')
_TIME_RE: Final = re.compile(rb'"ts":\s*([\d.]+)')
_STEP_RE: Final = re.compile(rb'"ProfilerStep#\d+"')
#: Times of a step's event: torch writes its fields in an order of its own, the bridge in that of the alphabet.
_STEP_TIMES_RES: Final = (
    re.compile(rb'"name":\s*"(?P<name>ProfilerStep#\d+)"[^{}]*?"ts":\s*(?P<ts>[\d.]+)[^{}]*?"dur":\s*(?P<dur>[\d.]+)'),
    re.compile(rb'"dur":\s*(?P<dur>[\d.]+),\s*"name":\s*"(?P<name>ProfilerStep#\d+)"[^{}]*?"ts":\s*(?P<ts>[\d.]+)'),
)
#: Bytes before and after the name of a step that have its times.
_REACH: Final = 400

_ALL: Final = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some of the steps of a file.

    Attributes:
        window: Time range of its events.
        first_step: Number of steps in the parts before.
        gaps: Ranges of bytes that have no event of the time range, ordered.
    """

    window: Interval = _ALL
    first_step: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


def file_parts(file: IO[bytes], max_bytes: int) -> list[FilePart]:
    """Return the parts of a file, each of about an equal number of steps.

    The text is searched for times without parsing it.

    Args:
        file: Trace file.
        max_bytes: Size of the largest part, if each step needs an equal part of the file.

    Returns:
        One part without limits if the file is small enough or has no steps.
    """
    chunks: list[tuple[int, int, Interval]] = []
    steps: dict[bytes, Interval] = {}
    position = 0
    for text in _split(file):
        chunks.append((position, position + len(text), _time_range(text)))
        position += len(text)
        for match in _STEP_RE.finditer(text):
            _add_steps(text[max(match.start() - _REACH, 0) : match.end() + _REACH], steps)
    count = math.ceil(position / max_bytes)
    if count <= 1 or not steps:
        return [FilePart()]
    ends = sorted(end for _, end in steps.values())
    size = math.ceil(len(ends) / count)
    # Events that start a little before the first step belong to its data loading.
    limits = [-math.inf, *(ends[index - 1] for index in range(size, len(ends), size)), math.inf]
    return [
        FilePart(
            (start, end),
            index * size,
            # The first and the last chunk have the other members of the file.
            tuple((begin, stop) for begin, stop, times in chunks[1:-1] if times[1] < start or times[0] >= end),
        )
        for index, (start, end) in enumerate(itertools.pairwise(limits))
    ]


class PartReader(io.RawIOBase):
    """File without some ranges of its bytes.

    Args:
        file: File to read from.
        gaps: Ranges to leave out, ordered.
    """

    def __init__(self, file: IO[bytes], gaps: tuple[tuple[int, int], ...]) -> None:
        self._file = file
        self._gaps = list(reversed(gaps))
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        while self._gaps and self._position == self._gaps[-1][0]:
            self._position = self._file.seek(self._gaps.pop()[1])
        size = min(len(buffer), self._gaps[-1][0] - self._position) if self._gaps else len(buffer)
        text = self._file.read(size)
        buffer[: len(text)] = text
        self._position += len(text)
        return len(text)


def _split(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in pieces that begin and end between two events."""
    rest = b""
    while chunk := file.read(_CHUNK_SIZE):
        text = rest + chunk
        end = text.rfind(b"},")
        while end >= 0 and (match := _BETWEEN_EVENTS_RE.match(text, end)) is None:
            end = text.rfind(b"},", 0, end)
        if end >= 0 and match is not None:
            yield text[: match.end()]
            rest = text[match.end() :]
        else:
            rest = text
    yield rest


def _time_range(text: bytes) -> Interval:
    """Return the first and the last start of events; all times for text with names of lanes, which each part needs."""
    if any(each in text for each in _METADATA):
        return _ALL
    times = list(map(float, _TIME_RE.findall(text)))
    return (min(times), max(times)) if times else _ALL


def _add_steps(text: bytes, steps: dict[bytes, Interval]) -> None:
    """Add the steps in a text; the copy of a step on another device's lanes has the same name."""
    for pattern in _STEP_TIMES_RES:
        for match in pattern.finditer(text):
            start = float(match["ts"])
            steps.setdefault(match["name"], (start, start + float(match["dur"])))
