"""Documents of reports and plans: parts that a terminal shows as text, and a page as HTML.

A page is a self-contained file without scripts, fonts or links.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence  # noqa: TC003 - dataclasses have annotations
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import jinja2

from hpu_sim.common.formatting import align, format_bytes, format_int, show_location
from hpu_sim.common.frames import Frame  # noqa: TC001 - as above

#: Maximum number of lines of a finding in a terminal, and of lines in a list on a page.
MAX_LINES: Final = 3
MAX_ENTRIES: Final = 100

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """Part of a document.

    Attributes:
        is_brief: Whether a terminal shows it.
    """

    kind: ClassVar[str]
    is_brief: bool = field(default=True, kw_only=True)

    def lines(self, width: int | None = None) -> list[str]:
        """Return what a terminal of a width shows; None for any width."""
        del width
        return []


@dataclass(frozen=True)
class Heading(Part):
    """Heading of a page."""

    kind = "heading"
    text: str


@dataclass(frozen=True)
class Text(Part):
    """Sentence or paragraph."""

    kind = "text"
    text: str
    style: str = ""

    def lines(self, width: int | None = None) -> list[str]:
        """Return the line."""
        del width
        return [f"  {self.text}"]


@dataclass(frozen=True)
class Table(Part):
    """Table, whose first column is a name.

    Attributes:
        columns: Names of the columns; those of words are left-aligned on a page.
        rows: Cells.
        title: Title.
        words: Names of the columns of words.
        good: Cells that are good, and those that are not.
        is_left: Whether a terminal aligns all columns on the left.
        most: Most rows in a terminal; None for all.
    """

    kind = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    words: frozenset[str] = frozenset()
    good: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    is_left: bool = True
    most: int | None = None

    def lines(self, width: int | None = None) -> list[str]:
        """Return the title and the aligned rows; in a narrower terminal, the cells of each row with their columns."""
        title = [f"  {self.title}:"] if self.title else []
        justify = str.ljust if self.is_left else str.rjust
        indent = 4 if self.title else 2
        shown = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in self.rows[: self.most]]
        aligned = align([tuple(self.columns), *shown], justify, indent)
        if width is not None and max(map(len, aligned)) > width:
            cells = ([f"{name} {cell}" for name, cell in zip(self.columns, row, strict=True) if cell] for row in shown)
            aligned = [f"{' ' * indent}{'; '.join(row)}" for row in cells]
        return title + aligned


def table(columns: Mapping[str, Callable[[_T], str]], items: Iterable[_T], **options: Any) -> Table:
    """Return a table with a row for each item, without the columns that would be empty.

    Args:
        columns: Name of each column, and the function that returns an item's cell.
        items: Items.
        options: Further attributes of the table.
    """
    items = list(items)
    cells = {name: list(map(cell, items)) for name, cell in columns.items()}
    shown = {name: found for name, found in cells.items() if any(found)}
    return Table(tuple(shown), list(zip(*shown.values(), strict=True)), **options)


@dataclass(frozen=True)
class Entry:
    """Line of the program with what it did, and its stack.

    Attributes:
        place: ``file:line``, or that there is none.
        code: Source code, or the part of a framework that caused it.
        often: How often.
        what: What it did.
        size: Bytes; 0 for none.
        who: Ranks; empty for a run with one.
        examples: Examples.
        stack: Frames.
        cause: Part of a framework that caused it.
    """

    place: str
    code: str
    often: str
    what: str
    size: int = 0
    who: str = ""
    examples: Sequence[str] = ()
    stack: Sequence[Frame] = ()
    cause: str = ""

    @property
    def name(self) -> str:
        """Place without its folder."""
        return self.place.rpartition("/")[2]

    @property
    def line(self) -> str:
        """Line in a terminal."""
        cause = f" ({self.cause})" if self.cause else ""
        return f"    {show_location(self.place)}{cause}  {self.often}: {self.what}"


@dataclass(frozen=True)
class Finding(Part):
    """Problem, with its cause and remedy.

    Attributes:
        category: "error", "performance", "numerics" or "good".
        title: Title.
        text: Cause and remedy.
        entries: Lines of the program.
    """

    kind = "finding"
    category: str
    title: str
    text: str = ""
    entries: Sequence[Entry] = ()

    def lines(self, width: int | None = None) -> list[str]:
        """Return the title and the first lines, or what to do."""
        del width
        shown = [f"  {self.category}: {self.title}", *(each.line for each in self.entries[:MAX_LINES])]
        if len(self.entries) > MAX_LINES:
            shown.append(f"    and {len(self.entries) - MAX_LINES} more lines")
        return shown if self.entries else [*shown, f"    {self.text}"]


@dataclass(frozen=True)
class Entries(Part):
    """Lines of the program in groups.

    Attributes:
        groups: Title and lines of each group.
    """

    kind = "entries"
    groups: Sequence[tuple[str, Sequence[Entry]]]


@dataclass(frozen=True)
class Document:
    """Report or plan.

    Attributes:
        title: Title of the page.
        badge: Whether it was simulated or predicted.
        command: Program and arguments.
        heading: First line in a terminal.
        subtitle: What is below the command on a page.
        parts: Parts.
        footer: Sentences at the end of a page.
    """

    title: str
    badge: str
    command: str
    heading: str
    parts: Sequence[Part]
    subtitle: str = ""
    footer: Sequence[str] = ()

    def text(self, width: int | None = None) -> str:
        """Return the text for a terminal.

        Args:
            width: Columns, after which lines are broken between words; None for lines of any length.
        """
        lines = [self.heading, *(line for part in self.parts if part.is_brief for line in part.lines(width))]
        if width is not None:
            lines = [_wrap(line, width) for line in lines]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """Return the page."""
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("hpu_sim.common", "."),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {"bytes": format_bytes, "number": format_int}
        values: dict[str, Any] = {"document": self, "most": MAX_ENTRIES}
        return environment.get_template("page.html.jinja").render(values)


def _wrap(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
