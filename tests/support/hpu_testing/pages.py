"""An HTML page, parsed as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

# Elements without an end tag.
_VOID: Final = {"br", "hr", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """A parsed page.

    Args:
        source: HTML of the page.

    Attributes:
        text: Visible text, with words separated by one space.
        elements: Pairs of a tag and its attributes, in order.
        errors: Errors in the nesting of elements.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.errors: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(source)
        self.close()
        self.errors += [f"{tag} is not closed" for tag in self._open]
        self.text = " ".join(self._words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element, which must be the innermost one."""
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.errors.append(f"{tag} is closed within {self._open}")

    def handle_data(self, data: str) -> None:
        """Add words that a reader sees."""
        if not {"style", "script"} & {*self._open}:
            self._words += data.split()

    def count(self, tag: str, **attributes: str) -> int:
        """Return the number of elements with a tag and attributes."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return sum(each == tag and wanted.items() <= own.items() for each, own in self.elements)

    def references(self) -> list[str]:
        """Return the URLs of other files."""
        return [str(own[name]) for _, own in self.elements for name in ("src", "href") if name in own]
