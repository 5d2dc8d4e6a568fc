"""Entries of the register: what is assumed about cards, where it stands, who relies on it, and how to see it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

Mode = Literal["eager", "lazy"]
Program = Callable[[], object]

STRICT: Final = "strict"
HARDWARE: Final = "hardware"


@dataclass(frozen=True, slots=True)
class Contains:
    """Text with a given part."""

    part: str

    def holds(self, seen: object) -> bool:
        """Return whether `seen` is such a text."""
        return isinstance(seen, str) and self.part in seen

    def __str__(self) -> str:
        return f"text with {self.part!r}"


@dataclass(frozen=True, slots=True)
class Matches:
    """Text that a regular expression matches as a whole."""

    pattern: str

    def holds(self, seen: object) -> bool:
        """Return whether `seen` is such a text."""
        return isinstance(seen, str) and re.fullmatch(self.pattern, seen, re.DOTALL) is not None

    def __str__(self) -> str:
        return f"text that matches {self.pattern}"


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """One of several values."""

    values: tuple[object, ...]

    def __init__(self, *values: object) -> None:
        object.__setattr__(self, "values", values)

    def holds(self, seen: object) -> bool:
        """Return whether `seen` is one of the values."""
        return seen in self.values

    def __str__(self) -> str:
        return " or ".join(map(repr, self.values))


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number that is not below another."""

    number: float

    def holds(self, seen: object) -> bool:
        """Return whether `seen` is such a number."""
        return isinstance(seen, int | float) and seen >= self.number

    def __str__(self) -> str:
        return f"at least {self.number:g}"


@dataclass(frozen=True, slots=True)
class Points:
    """Measured points for the planner, of one kind."""

    kind: str

    def holds(self, seen: object) -> bool:
        """Return whether `seen` is a list of such points, all with a time."""
        return isinstance(seen, list) and all(
            point["kind"] == self.kind and isinstance(point["seconds"], float) and point["seconds"] > 0
            for point in seen
        )

    def __str__(self) -> str:
        return "measured times"


def holds(expected: object, seen: object) -> bool:
    """Return whether a value of a program, as JSON has it, is the expected one."""
    if isinstance(expected, Contains | Matches | OneOf | AtLeast | Points):
        return expected.holds(seen)
    if isinstance(expected, Mapping):
        return (
            isinstance(seen, Mapping)
            and expected.keys() == seen.keys()
            and all(holds(value, seen[key]) for key, value in expected.items())
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(seen, list)
            and len(expected) == len(seen)
            and all(holds(value, other) for value, other in zip(expected, seen, strict=True))
        )
    # 1 is not True.
    return type(expected) is type(seen) and expected == seen


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
        expected: Value that the program returns where it holds: JSON data, also with `Contains` and the like in it.
        program: Shows it, in a process of its own. It may raise `NotTriedError`.
        means: What a difference means, one sentence per package that relies on the assumption.
        releases: SynapseAI releases for which it is claimed, as a version specifier; "" for all.
        generations: Generations of cards for which it is claimed; empty for all.
        mode: Mode of the bridge in which the program runs; None for the release's default.
        ranks: Whether the program runs as a job of one rank per card.
        simulator: "" if any simulated card shows it, "strict" if only one in strict mode does, "hardware" if none.
        reason: Why no simulated card shows it.
        quick: Whether the program takes less than a second on a simulated card.
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
    generations: tuple[str, ...] = ()
    mode: Mode | None = None
    ranks: bool = False
    simulator: Literal["", "strict", "hardware"] = ""
    reason: str = ""
    quick: bool = True
    seconds: int = 60
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_point(self) -> bool:
        """Whether it measures points for the planner."""
        return isinstance(self.expected, Points)

    @property
    def claim(self) -> str:
        """Releases, generations and mode for which it is claimed, as text."""
        parts = [self.releases and f"SynapseAI {self.releases}", *self.generations, self.mode and f"{self.mode} mode"]
        return ", ".join(filter(None, parts)) or "all releases"

    def applies_to(self, release: str | None, generation: str | None) -> bool:
        """Return whether it is claimed for a release and a generation; an unknown one counts as claimed."""
        known = release is None or SpecifierSet(self.releases).contains(Version(release), prereleases=True)
        return known and (not self.generations or generation is None or generation in self.generations)


class NotTriedError(Exception):
    """The program cannot show its assumption here; the message says why."""


class Subject:
    """Group of assumptions about one thing, to which modules of `register` add.

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
        """Return a decorator that adds an assumption, whose id is the function's name and statement its docstring.

        Args:
            fields: The other fields of `Assumption`.
        """

        def add(program: Program) -> Program:
            name = program.__name__.strip("_").replace("_", "-")
            self.add(name, " ".join(str(program.__doc__).split()), program, **fields)
            return program

        return add

    def add(self, name: str, statement: str, program: Program, **fields: Any) -> None:
        """Add an assumption.

        Args:
            name: Its id.
            statement: What is assumed.
            program: Shows it.
            fields: The other fields of `Assumption`.
        """
        known = {"id": name, "subject": self.title, "statement": statement, "program": program}
        self._assumptions.append(Assumption(**{**self._defaults, **known, **fields}))
