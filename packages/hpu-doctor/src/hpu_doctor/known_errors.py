"""Explanation of error messages: cause, cure and source of the known errors that a text or a log contains.

The data is `known_errors.json` beside this module. A pattern is literal text in which `{}` stands for any text on the
same line; case is ignored.
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, BinaryIO, Final

_ANY: Final = "{}"
# Longest text that `{}` stands for.
_MAX_ANY: Final = 300
_BLOCK_BYTES: Final = 1 << 20
# Longer than any match.
_OVERLAP: Final = 1024
_MAX_LINE: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """One known error.

    Attributes:
        id: Name of the entry.
        patterns: Patterns, of which one has to match.
        example: A line that matches.
        cause: Why the error occurs.
        cure: What to do about it.
        source: Where the text and its cause are documented.
        on_card: Whether somebody reported it from a real card.
    """

    id: str
    patterns: tuple[str, ...]
    example: str
    cause: str
    cure: str
    source: str
    on_card: bool

    @property
    def specificity(self) -> int:
        """Number of literal characters of the longest pattern."""
        return max(len(pattern.replace(_ANY, "")) for pattern in self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A known error that a text contains.

    Attributes:
        error: The known error.
        line_number: Number of the first line that matches, from 1.
        line: That line, shortened around the match.
        count: Number of lines that match.
    """

    error: KnownError
    line_number: int
    line: str
    count: int


@dataclass(frozen=True, slots=True)
class _Matcher:
    error: KnownError
    # Each with the longest literal part of its pattern, in lower case: a search for it is faster than the expression.
    expressions: tuple[tuple[str, re.Pattern[str]], ...]


@functools.cache
def known_errors() -> tuple[KnownError, ...]:
    """Return every known error, the most specific one first."""
    text = (resources.files("hpu_doctor") / "known_errors.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["errors"]
    errors = [KnownError(**{**row, "patterns": tuple(row["patterns"])}) for row in rows]
    return tuple(sorted(errors, key=lambda error: -error.specificity))


def explain(stream: BinaryIO, errors: Sequence[KnownError] | None = None) -> tuple[Explanation, ...]:
    """Return the known errors that a stream contains, the most specific one first.

    The stream is read in blocks, so its size does not matter, and bytes that are not UTF-8 are replaced.

    Args:
        stream: The text.
        errors: The errors to search for; None for all known ones.
    """
    matchers = [_matcher(error) for error in (known_errors() if errors is None else errors)]
    found: dict[str, Explanation] = {}
    line_number = 1
    for block, offset in _blocks(stream):
        lowered = block.lower()
        for matcher in matchers:
            # By line, in order: several patterns of an error may match one line, and each in another order.
            matches = {_line_start(block, match): match for match in _matches(matcher, block, lowered, offset)}
            for start, match in sorted(matches.items()):
                known = found.get(matcher.error.id)
                found[matcher.error.id] = Explanation(
                    error=matcher.error,
                    line_number=known.line_number if known else line_number + block.count("\n", 0, start),
                    line=known.line if known else _line(block, match),
                    count=known.count + 1 if known else 1,
                )
        line_number += block.count("\n")
    return tuple(sorted(found.values(), key=lambda explanation: -explanation.error.specificity))


def to_json(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Return explanations as plain data that `json` can serialize."""
    return {
        "schema_version": 1,
        "errors": [
            {
                "id": found.error.id,
                "line_number": found.line_number,
                "line": found.line,
                "count": found.count,
                "cause": found.error.cause,
                "cure": found.error.cure,
                "source": found.error.source,
                "on_card": found.error.on_card,
            }
            for found in explanations
        ],
    }


def _matcher(error: KnownError) -> _Matcher:
    expressions = []
    for pattern in error.patterns:
        parts = pattern.split(_ANY)
        text = f".{{0,{_MAX_ANY}}}?".join(map(re.escape, parts))
        expressions.append((max(parts, key=len).lower(), re.compile(text, re.IGNORECASE)))
    return _Matcher(error, tuple(expressions))


def _matches(matcher: _Matcher, block: str, lowered: str, offset: int) -> Iterator[re.Match[str]]:
    for anchor, expression in matcher.expressions:
        if anchor in lowered:
            yield from (match for match in expression.finditer(block) if match.end() > offset)


def _blocks(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Yield the text in blocks of whole lines, each with the length of its part that was in the block before."""
    rest = b""
    offset = 0
    while data := stream.read(_BLOCK_BYTES):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) < _BLOCK_BYTES:
            rest = data
            continue
        # A line that does not fit is cut, and its end is searched again together with what follows.
        cut = end or len(data)
        yield _decode(data[:cut]), offset
        rest = data[cut:] if end else data[-_OVERLAP:]
        offset = 0 if end else len(_decode(rest))
    if rest:
        yield _decode(rest), offset


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _line_start(block: str, match: re.Match[str]) -> int:
    return max(block.rfind("\n", 0, match.start()), block.rfind("\r", 0, match.start())) + 1


def _line(block: str, match: re.Match[str]) -> str:
    """Return the line of a match, shortened around it. Progress bars end their lines by a carriage return."""
    start = _line_start(block, match)
    ends = [end for end in (block.find("\n", match.end()), block.find("\r", match.end())) if end >= 0]
    end = min(ends, default=len(block))
    before = max(start, match.start() - _MAX_LINE // 4)
    after = min(end, max(before + _MAX_LINE, match.end()))
    return f"{'...' if before > start else ''}{block[before:after].strip()}{'...' if after < end else ''}"
