"""Check the links of this repository's Markdown, without a network.

- A relative link leads to a file of the repository, and its fragment to a heading there.
- A package's README stands alone on a package index, so its links are absolute, or to its own headings.
- Links to other places are not followed.

Fragments in pages under docs/ are left to Sphinx, which knows what headings those have.

Usage: `python scripts/links.py`; `nox -s docs` calls it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parent.parent
PATTERNS: Final = ("*.md", "packages/*/*.md", "packages/*/docs/*.md", "docs/**/*.md", "examples/**/*.md")
_PARSER: Final = MarkdownIt("commonmark").enable("table")
_ABSOLUTE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class Link:
    """A link or an image.

    Attributes:
        line: Where its paragraph begins, from 1.
        target: What it leads to, as it stands.
    """

    line: int
    target: str


def links(text: str) -> list[Link]:
    """Return the links and images of a document, in order.

    Args:
        text: The document.
    """
    found = []
    for block in _PARSER.parse(text):
        line = block.map[0] + 1 if block.map else 0
        for token in block.children or []:
            target = token.attrGet("href") or token.attrGet("src")
            if target is not None:
                found.append(Link(line, str(target)))
    return found


def anchors(text: str) -> set[str]:
    """Return what the headings of a document can be linked to by, as hosts of repositories and MyST make it.

    Args:
        text: The document.
    """
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading, inline in pairwise(_PARSER.parse(text)):
        if heading.type == "heading_open":
            name = re.sub(r"[^\w\- ]", "", _plain(inline).lower()).replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def _plain(inline: Token) -> str:
    """Return the text of a heading without its marks."""
    return "".join(token.content for token in inline.children or [] if token.type in {"text", "code_inline"})


def faults(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the links of a document, a sentence for each.

    Args:
        path: The document.
        root: The repository.
    """
    text = path.read_text(encoding="utf-8")
    place = path.relative_to(root)
    alone = place.parts[0] == "packages" and place.name == "README.md"
    for link in links(text):
        if _ABSOLUTE.match(link.target):
            continue
        file, _, fragment = link.target.partition("#")
        target = (path.parent / file).resolve() if file else path
        where = f"{place}:{link.line}: {link.target!r}"
        if file and alone:
            yield f"{where} is relative, and this README is shown on a package index, where nothing lies beside it"
        elif not target.is_relative_to(root) or not target.exists():
            yield f"{where} leads to no file of this repository"
        elif fragment and target.suffix == ".md" and place.parts[0] != "docs" and fragment not in _anchors_of(target):
            yield f"{where} leads to no heading of {target.relative_to(root)}"


def _anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))


def main() -> int:
    """Check every document.

    Returns:
        0, or 1 when a link is dead.
    """
    documents = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern) if "_build" not in path.parts})
    found = [fault for path in documents for fault in faults(path)]
    for fault in found:
        print(fault)
    print(f"{len(documents)} documents, {len(found)} dead links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
