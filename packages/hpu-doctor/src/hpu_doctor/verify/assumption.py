"""Entries of the register: what is assumed about cards, where it stands, who relies on it, and how to see it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

Mode = Literal["eager", "lazy"]
Program = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Condition:
    """Values that are expected where it is not a single one, in words and as a test of JSON data."""

    text: str
    check: Callable[[Any], bool]

    def __str__(self) -> str:
        return self.text


def contains(part: str) -> Condition:
    """Return the condition of a text with a part."""
    return Condition(f"text with {part!r}", lambda seen: isinstance(seen, str) and part in seen)


def matches(pattern: str) -> Condition:
    """Return the condition of a text that a regular expression matches as a whole."""
    expression = re.compile(pattern, re.DOTALL)
    return Condition(
        f"text that matches {pattern}", lambda seen: isinstance(seen, str) and bool(expression.fullmatch(seen))
    )


def one_of(*values: object) -> Condition:
    """Return the condition of one of several values."""
    return Condition(" or ".join(map(repr, values)), lambda seen: seen in values)


def at_least(number: float) -> Condition:
    """Return the condition of a number that is not below another."""
    return Condition(f"at least {number:g}", lambda seen: isinstance(seen, int | float) and seen >= number)


def is_expected(expected: object, seen: object) -> bool:
    """Return whether a value of a program, as JSON has it, is the expected one."""
    if isinstance(expected, Condition):
        return expected.check(seen)
    if isinstance(expected, Mapping):
        return isinstance(seen, Mapping) and expected.keys() == seen.keys() and not difference(expected, seen)[0]
    if isinstance(expected, list | tuple):
        return isinstance(seen, list) and len(expected) == len(seen) and all(map(is_expected, expected, seen))
    # 1 is not True.
    return type(expected) is type(seen) and expected == seen


def difference(expected: object, seen: object) -> tuple[object, object]:
    """Return what is expected and what was seen, of a table only the cases that differ."""
    if isinstance(expected, Mapping) and isinstance(seen, Mapping) and expected.keys() == seen.keys():
        names = [name for name in expected if not is_expected(expected[name], seen[name])]
        return {name: expected[name] for name in names}, {name: seen[name] for name in names}
    return expected, seen


def describe(value: object) -> str:
    """Return a value or an expectation as short text."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {describe(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(describe, value))}]"
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumption about cards or the bridge.

    Attributes:
        id: Name in markers, reports and records.
        subject: Title of its group.
        statement: What is assumed, one sentence.
        source: Where it stands: file and lines of a published source, document or figure.
        expected: Value that the program returns where it holds: JSON data, also with conditions in it.
        program: Shows it, in a process of its own. It may raise `SkippedError`.
        means: What a difference means, one sentence per package that relies on the assumption.
        releases: SynapseAI releases for which it is claimed, as a version specifier; "" for all.
        generations: Generations of cards for which it is claimed; empty for all.
        mode: Mode of the bridge in which the program runs; None for the release's default.
        ranks: Whether the program runs as a job of one rank per card.
        seconds: Time limit.
        variables: Environment variables that the process starts with.
        files: Texts in the folder of the process, by name.
    """

    id: str
    subject: str
    statement: str
    source: str
    expected: object
    program: Program
    means: Mapping[str, str]
    releases: str = ""
    generations: Sequence[str] = ()
    mode: Mode | None = None
    ranks: bool = False
    seconds: int = 120
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        """Releases, generations and mode for which it is claimed, as text."""
        parts = [self.releases and f"SynapseAI {self.releases}", *self.generations, self.mode and f"{self.mode} mode"]
        return ", ".join(filter(None, parts)) or "all releases"

    def applies_to(self, release: str | None, generation: str | None) -> bool:
        """Return whether it is claimed for a release and a generation; an unknown one counts as claimed."""
        known = release is None or SpecifierSet(self.releases).contains(Version(release), prereleases=True)
        return known and (not self.generations or generation is None or generation in self.generations)


class SkippedError(Exception):
    """The program cannot show its assumption here; the message says why."""


class Subject:
    """Group of assumptions about one thing.

    Args:
        title: Title of the group.
        defaults: Fields of its assumptions that have a value of their own by default.
    """

    def __init__(self, title: str, **defaults: Any) -> None:
        self.title = title
        self._defaults = defaults
        self._assumptions: list[Assumption] = []

    def __iter__(self) -> Iterator[Assumption]:
        return iter(self._assumptions)

    def assume(self, **fields: Any) -> Callable[[Program], Program]:
        """Return a decorator that adds an assumption, whose id is the function's name and statement its docstring."""

        def add(program: Program) -> Program:
            name = program.__name__.strip("_").replace("_", "-")
            self.add(name, " ".join(str(program.__doc__).split()), program, **fields)
            return program

        return add

    def table(self, name: str, statement: str, cases: Mapping[str, tuple[object, Program]], **fields: Any) -> None:
        """Add an assumption of several cases, each with the value that its function returns; an error is one, too."""

        def program() -> object:
            return {case: returned_or_error(function) for case, (_, function) in cases.items()}

        self.add(name, statement, program, expected={case: value for case, (value, _) in cases.items()}, **fields)

    def add(self, name: str, statement: str, program: Program, **fields: Any) -> None:
        """Add an assumption by its id, statement, program and other fields."""
        known = {"id": name, "subject": self.title, "statement": statement, "program": program}
        self._assumptions.append(Assumption(**{**self._defaults, **known, **fields}))


def error_of(function: Callable[[], object]) -> str:
    """Return the error of a call as "Class: message", "no error" if it returns."""
    try:
        function()
    except SkippedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is.
        return f"{type(error).__name__}: {error}"
    return "no error"


def returned_or_error(function: Callable[[], object]) -> object:
    """Return what a call returns, or its error as text."""
    result: list[object] = []
    text = error_of(lambda: result.append(function()))
    return result[0] if result else text
