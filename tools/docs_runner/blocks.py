"""Code blocks of documents and the directives before them, read with Sybil's lexers.

In this repository's own Markdown, Python and shell blocks are run as they stand. A hidden comment right before a block
changes that:

- `<!-- not run: REASON -->` skips the block.
- `<!-- cards: 8 -->` runs it on a machine with that many cards. A block that makes a Trainer gets as many as the
  Trainer asks for.
- `<!-- file: train.py -->` writes it to a file, which a later command of the document must name.
- `<!-- output -->` compares it with the output of the last block that ran. "..." matches anything.
  `<!-- output: part -->` allows other lines before and after it. `<!-- output: part, figures vary -->` accepts any
  number where a number is shown.

A `literalinclude` directive is a file. Every other block is an error. In documents from elsewhere, Python blocks run
and commands are skipped for the reasons of `EXTERNAL_COMMANDS`.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from sybil import Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer
from sybil.parsers.rest.lexers import DirectiveLexer

from docs_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sybil import Document

# Commands of other people's documents that are skipped: the beginning of each, and the reason.
EXTERNAL_COMMANDS: Final = {
    "pip install": "installs the archived package that these packages replace",
    "python -um pip install": "installs tools for viewing traces",
    "tensorboard": "starts a server",
    "MASTER_ADDR": "run with the block that it starts",
}
_NO_CODE: Final = frozenset({"eval-rst", "figure", "image", "include", "program-output", "toctree"})
_MYST_DIRECTIVE: Final = re.compile(r"\{([\w-]+)\}\s*(.*)")
_SHELLS: Final = frozenset({"bash", "sh", "shell"})
_HIDDEN_COMMENT: Final = re.compile(
    r"<!--\s*(not run|cards|file|output)\b(?::\s*((?:(?!-->).)*?))?\s*-->\s*\Z", re.DOTALL
)
_OUTPUT_OPTIONS: Final = frozenset({"part", "figures vary"})
_NUMBER: Final = re.compile(r"\d[\d.,:]*")
_PAGE_TRAINER: Final = re.compile(r"^((?:#.*\n)?trainer = \w*Trainer\(.*\))\s*$", re.MULTILINE)
_PAGE_COMMAND: Final = re.compile(r"^([A-Z_]+=\S+(?: [A-Z_]+=\S+)*)\s*\n(.*)$", re.MULTILINE)

Kind = Literal["python", "shell", "file", "output", "skip"]


class BlockError(ValueError):
    """A block that nothing runs and no comment explains, or a comment with a wrong argument."""


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        location: "docs/index.md:12".
        kind: How the block is handled.
        text: The code.
        argument: Reason of a skip, name of a file, or options of an output comparison.
        devices: Number of cards of the machine; None for the default.
    """

    location: str
    kind: Kind
    text: str
    argument: str = ""
    devices: int | None = None


def parse(document: Document) -> Iterator[Region]:
    """Yield the regions of a document, each with its `Block` as `parsed`.

    Args:
        document: A .md, .rst or .txt document. A .txt file holds the text of a web page.

    Raises:
        BlockError: A block is not explained.
    """
    path = Path(document.path)
    is_own = path.is_relative_to(ROOT)
    name = str(path.relative_to(ROOT)) if is_own else path.name
    regions = []
    for region in _LEXERS[path.suffix](document):
        code = Region(region.start, region.end)
        language, text = region.lexemes["language"].strip(), region.lexemes["source"]
        location = f"{name}:{document.text.count(chr(10), 0, region.start) + 1}"
        directive = _MYST_DIRECTIVE.match(language)
        if directive and directive[1] in _NO_CODE:
            continue
        if directive and directive[1] == "literalinclude":
            included = path.parent / directive[2]
            code.parsed = Block(location, "file", included.read_text(encoding="utf-8"), included.name)
        elif is_own:
            code.parsed = _own_block(location, language, text, document.text[: region.start])
        else:
            code.parsed = _external_block(location, language, text)
        regions.append(code)
    _check_order([region.parsed for region in regions])
    yield from regions


def _own_block(location: str, language: str, text: str, before: str) -> Block:
    comment = _HIDDEN_COMMENT.search(before)
    key, argument = (comment[1], " ".join((comment[2] or "").split())) if comment else ("", "")
    if key in {"not run", "file"} and argument:
        return Block(location, "skip" if key == "not run" else "file", text, argument)
    if key == "output" and _options(argument) <= _OUTPUT_OPTIONS:
        return Block(location, "output", text, argument)
    if key not in {"", "cards"} or (key == "cards" and not re.fullmatch(r"[1-9]\d*", argument)):
        raise BlockError(f"{location}: {argument!r} is not an argument of the comment `{key}`; see blocks.py")
    devices = int(argument) if key == "cards" else None
    if language == "python":
        return Block(location, "python", text, devices=devices)
    if language in _SHELLS:
        return Block(location, "shell", text, devices=devices)
    raise BlockError(
        f"{location}: nothing runs a block of {language!r}, and no comment explains it: "
        "put `<!-- not run: REASON -->`, `<!-- file: NAME -->` or `<!-- output -->` right before it"
    )


def _external_block(location: str, language: str, text: str) -> Block:
    if language == "python":
        return Block(location, "python", text)
    reason = next((reason for start, reason in EXTERNAL_COMMANDS.items() if text.startswith(start)), None)
    if reason is None:
        raise BlockError(f"{location}: EXTERNAL_COMMANDS does not know this command: {text!r}")
    return Block(location, "skip", text, reason)


def _check_order(blocks: Sequence[Block]) -> None:
    """Check that an output follows a block that runs, and that a command names each file written before it."""
    for index, block in enumerate(blocks):
        if block.kind == "output" and not any(other.kind in {"python", "shell"} for other in blocks[:index]):
            raise BlockError(f"{block.location}: no block before this output is run")
        parts = block.argument.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        commands = [other.text for other in blocks[index:] if other.kind == "shell"]
        if block.kind == "file" and not any(prefix in text for prefix in prefixes for text in commands):
            raise BlockError(f"{block.location}: no later command names the file {block.argument!r}")


def _options(argument: str) -> set[str]:
    return {option.strip() for option in argument.split(",")} - {""}


def matches_output(block: Block, output: str) -> bool:
    """Return whether a block of kind "output" shows what was printed."""
    options = _options(block.argument)
    want, got = block.text, "\n".join(line.rstrip() for line in output.splitlines()) + "\n"
    if "figures vary" in options:
        want, got = (_NUMBER.sub("0", text) for text in (want, got))
        # The width of a table's column depends on its figures.
        want, got = (re.sub(r"[ ─━-]{2,}", " ", text) for text in (want, got))
    if "part" in options:
        want, got = f"...\n{want}...", f"\n{got}"
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def _page_lexer(document: Document) -> Iterator[Region]:
    """Find Trainers, with the comment above, and commands, with their variables, in the text of a web page."""
    for match in _PAGE_TRAINER.finditer(document.text):
        yield Region(match.start(), match.end(), lexemes={"language": "python", "source": f"{match[1]}\n"})
    for match in _PAGE_COMMAND.finditer(document.text):
        yield Region(match.start(), match.end(), lexemes={"language": "bash", "source": f"{match[1]} {match[2]}\n"})


_LEXERS: Final[dict[str, Callable[[Document], Iterable[Region]]]] = {
    ".md": FencedCodeBlockLexer(r"[^\n]*"),
    ".rst": DirectiveLexer("code-block|code", r"[\w-]+", {"arguments": "language", "source": "source"}),
    ".txt": _page_lexer,
}
