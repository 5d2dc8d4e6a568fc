"""Explanation of error messages: cause, cure and source of the known errors that a text or a log contains.

The data is `known_errors.json` beside this module. A pattern is literal text in which `{}` stands for any text on the
same line; case is ignored.
"""

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, BinaryIO, Final

_ANY: Final = "{}"
# Longest text that `{}` stands for.
_MAX_ANY: Final = 300
_BLOCK_BYTES: Final = 1 << 20
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
    # The longest literal part of each pattern, in lower case: a search for it is faster than the expression.
    anchors: tuple[str, ...]
    expression: re.Pattern[str]


@functools.cache
def known_errors() -> tuple[KnownError, ...]:
    """Return every known error, the most specific one first."""
    text = (resources.files("hpu_doctor") / "known_errors.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["errors"]
    errors = [KnownError(**{**row, "patterns": tuple(row["patterns"])}) for row in rows]
    return tuple(sorted(errors, key=lambda error: -error.specificity))


def explain(stream: BinaryIO, errors: Sequence[KnownError] | None = None) -> tuple[Explanation, ...]:
    """Return the known errors that a stream contains, the most specific one first.

    The stream is read in blocks of lines, so its size does not matter, and bytes that are not UTF-8 are replaced.

    Args:
        stream: The text.
        errors: The errors to search for; None for all known ones.
    """
    matchers = [_matcher(error) for error in (known_errors() if errors is None else errors)]
    found: dict[str, Explanation] = {}
    first_line = 1
    while lines := stream.readlines(_BLOCK_BYTES):
        # A search of the whole block for literal text leaves few errors, of which each line is searched.
        block = _decode(b"".join(lines)).lower()
        in_block = [matcher for matcher in matchers if any(anchor in block for anchor in matcher.anchors)]
        for number, line in enumerate(lines, first_line) if in_block else ():
            # Progress bars end their lines by a carriage return.
            for part in _decode(line).split("\r"):
                _search(part, number, in_block, found)
        first_line += len(lines)
    return tuple(sorted(found.values(), key=lambda explanation: -explanation.error.specificity))


def to_json(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Return explanations as plain data that `json` can serialize."""
    return {
        "schema_version": 1,
        "errors": [
            {name: getattr(found, name) for name in ("line_number", "line", "count")}
            | {name: getattr(found.error, name) for name in ("id", "cause", "cure", "source", "on_card")}
            for found in explanations
        ],
    }


def _matcher(error: KnownError) -> _Matcher:
    parts = [pattern.split(_ANY) for pattern in error.patterns]
    text = "|".join(f".{{0,{_MAX_ANY}}}?".join(map(re.escape, each)) for each in parts)
    return _Matcher(error, tuple(max(each, key=len).lower() for each in parts), re.compile(text, re.IGNORECASE))


def _search(line: str, number: int, matchers: Sequence[_Matcher], found: dict[str, Explanation]) -> None:
    """Add the errors that a line has to those found."""
    for matcher in matchers:
        match = matcher.expression.search(line)
        if match is None:
            continue
        known = found.get(matcher.error.id) or Explanation(
            error=matcher.error, line_number=number, line=_shorten(line, match), count=0
        )
        found[matcher.error.id] = replace(known, count=known.count + 1)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _shorten(line: str, match: re.Match[str]) -> str:
    """Return a line, shortened around a match."""
    before = max(0, match.start() - _MAX_LINE // 4)
    after = max(before + _MAX_LINE, match.end())
    return f"{'...' if before else ''}{line[before:after].strip()}{'...' if after < len(line) else ''}"
