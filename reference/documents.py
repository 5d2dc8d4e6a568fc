"""The code blocks of documents: reStructuredText, Markdown, or the text of a web page.

A web page's text has lost its marks: there, code is what reads as a statement that makes a Trainer, with the comment
above it, or as a command with its variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TRAINER: Final = re.compile(r"trainer = \w*Trainer\(.*\)\s*$")
_COMMENT: Final = re.compile(r"<!--\s*(.*?)\s*-->\s*", re.DOTALL)
_COMMAND: Final = re.compile(r"[A-Z_]+=\S+( [A-Z_]+=\S+)*\s*$")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        document: The name of its file.
        line: Where it begins, from 1.
        title: Of the section it is in.
        language: "python", "bash" or another that the document names; empty where it names none.
        text: The code as it stands.
        comment: What an invisible comment right before it says, in Markdown.
    """

    document: str
    line: int
    title: str
    language: str
    text: str
    comment: str = ""


def read(path: Path) -> list[Block]:
    """Return the code blocks of a document, in order.

    Args:
        path: A file that ends in .rst, .md or .txt.

    Raises:
        ValueError: It ends otherwise.
    """
    readers = {".rst": _of_restructured_text, ".md": _of_markdown, ".txt": _of_page_text}
    reader = readers.get(path.suffix)
    if reader is None:
        raise ValueError(f"a document must end in {', '.join(readers)}, got {path.name!r}")
    found = reader(path.read_text(encoding="utf-8"))
    return [Block(path.name, *parts) for parts in found]


# All of a block but its document.
_Found = tuple[int, str, str, str, str]


def _of_restructured_text(text: str) -> Iterator[_Found]:
    from docutils import nodes
    from docutils.core import publish_doctree

    # Roles and directives of Sphinx are unknown here and concern no code.
    quiet: dict[str, Any] = {"report_level": 5, "halt_level": 5, "file_insertion_enabled": False, "raw_enabled": False}
    for block in publish_doctree(f"{text}\n\n", settings_overrides=quiet).findall(nodes.literal_block):
        if "code" in block["classes"]:
            section: Any = block.parent
            while section.parent is not None and not isinstance(section, nodes.section):
                section = section.parent
            title = section.next_node(nodes.title)
            (language,) = (name for name in block["classes"] if name != "code")
            code = block.astext()
            # The line is the one after the block.
            yield (block.line or 0) - len(code.splitlines()), title.astext() if title else "", language, code, ""


def _of_markdown(text: str) -> Iterator[_Found]:
    from markdown_it import MarkdownIt

    title, comment = "", ""
    tokens = MarkdownIt().parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            title = following.content
        elif token.type == "fence" and token.map is not None:
            yield token.map[0] + 2, title, token.info.strip(), token.content, comment
        said = _COMMENT.fullmatch(token.content) if token.type == "html_block" else None
        comment = said[1] if said else ""


def _of_page_text(text: str) -> Iterator[_Found]:
    title, comment = "", ""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.endswith("¶"):
            title = line[:-1]
        if _TRAINER.match(line):
            yield number, title, "python", f"{comment}{line}\n", ""
        elif _COMMAND.match(line) and number < len(lines):
            yield number, title, "bash", f"{line} {lines[number]}\n", ""
        comment = f"{line}\n" if line.startswith("#") else ""
