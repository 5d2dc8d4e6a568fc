"""What becomes of each code block of this repository's own documents.

Python and shell blocks are run as they stand. An invisible comment right before a block says otherwise:

- `<!-- not run: REASON -->`: it is not.
- `<!-- cards: 8 -->`: its machine has so many cards. A block that makes a Trainer has as many as that asks for.
- `<!-- file: train.py -->`: it is a file, which a later command of the document names.
- `<!-- output -->`: it is what the block that ran before has printed. Where it has "...", anything may stand.
  `<!-- output: part -->`: other lines may stand before and after it. `<!-- output: part, figures vary -->`: numbers
  are only compared for being there.

A file that a page shows by `literalinclude` is one as with `file`. A block of which nothing of this is true is an
error.
"""

from __future__ import annotations

import dataclasses
import doctest
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import documents

if TYPE_CHECKING:
    from pathlib import Path

Fate = Literal["python", "shell", "file", "output", "not run"]

# Directives of MyST that hold no code of their own.
_NO_CODE: Final = frozenset({"eval-rst", "figure", "image", "include", "toctree"})
_DIRECTIVE: Final = re.compile(r"\{([\w-]+)\}\s*(.*)")
_SHELLS: Final = frozenset({"bash", "sh", "shell"})
_SAYING: Final = re.compile(r"(not run|cards|file|output)(?::\s*(.+))?", re.DOTALL)
_HOW_TO_SHOW: Final = frozenset({"part", "figures vary"})
_FIGURE: Final = re.compile(r"\d[\d.,:]*")


class PageError(ValueError):
    """A document has a block that nothing runs and nobody has explained, or a comment that means nothing."""


@dataclass(frozen=True)
class Step:
    """A block and what becomes of it.

    Attributes:
        block: The block.
        fate: What becomes of it.
        words: The reason why it is not run; the name of the file; how the output is compared.
        cards: How many cards its machine has; None where nothing is said.
    """

    block: documents.Block
    fate: Fate
    words: str = ""
    cards: int | None = None


def plan(path: Path, root: Path) -> list[Step]:
    """Return what becomes of the blocks of a document, in order.

    Args:
        path: The document.
        root: The repository.

    Raises:
        PageError: A block is not explained.
    """
    name = str(path.relative_to(root))
    steps: list[Step] = []
    for found in documents.read(path):
        block = dataclasses.replace(found, document=name)
        directive = _DIRECTIVE.match(block.language)
        if directive and directive[1] in _NO_CODE:
            continue
        if directive and directive[1] == "literalinclude":
            shown = path.parent / directive[2]
            block = dataclasses.replace(block, text=shown.read_text(encoding="utf-8"), comment=f"file: {shown.name}")
        step = _step(block)
        if step.fate == "output" and not any(before.fate in {"python", "shell"} for before in steps):
            raise PageError(f"{_where(step.block)} is said to be output, and no block before it is run")
        steps.append(step)
    for number, step in enumerate(steps):
        later = [other.block.text for other in steps[number:] if other.fate == "shell"]
        if step.fate == "file" and not any(_part_of_a_path(step.words, text) for text in later):
            raise PageError(
                f"{_where(step.block)} is said to be the file {step.words!r}, and no later command names it"
            )
    return steps


def _step(block: documents.Block) -> Step:
    said = _SAYING.fullmatch(block.comment)
    key, words = (said[1], " ".join((said[2] or "").split())) if said else ("", "")
    if key == "not run" and words:
        return Step(block, "not run", words)
    if key == "file" and words:
        return Step(block, "file", words)
    if key == "output" and _how(words) <= _HOW_TO_SHOW:
        return Step(block, "output", words)
    if key == "cards" and not (words.isdecimal() and int(words) > 0):
        raise PageError(f"{_where(block)}: `cards` must be a positive number, got {words!r}")
    if key not in {"", "cards"}:
        raise PageError(f"{_where(block)}: the comment {block.comment!r} says nothing that is known; see pages.py")
    cards = int(words) if key == "cards" else None
    if block.language == "python":
        return Step(block, "python", cards=cards)
    if block.language in _SHELLS:
        return Step(block, "shell", cards=cards)
    raise PageError(
        f"{_where(block)} is {block.language!r}, which nothing runs, and no comment explains it: put "
        "`<!-- not run: REASON -->`, `<!-- file: NAME -->` or `<!-- output -->` right before it"
    )


def _where(block: documents.Block) -> str:
    return f"{block.document}:{block.line}: the block"


def _how(words: str) -> set[str]:
    return {word.strip() for word in words.split(",")} - {""}


def _part_of_a_path(name: str, text: str) -> bool:
    """Tell whether a command names a file or a folder that it is in."""
    parts = name.split("/")
    return any("/".join(parts[:count]) in text for count in range(len(parts), 0, -1))


def is_shown(step: Step, printed: str) -> bool:
    """Tell whether a document shows what was printed.

    Args:
        step: A block that is output.
        printed: All that the block before it has printed.
    """
    how = _how(step.words)
    wanted, got = step.block.text, "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    if "figures vary" in how:
        wanted, got = (_FIGURE.sub("0", text) for text in (wanted, got))
        # A column is as wide as its figures.
        wanted, got = (re.sub(r"[ ─━-]{2,}", " ", text) for text in (wanted, got))
    if "part" in how:
        wanted = f"...\n{wanted}..."
        got = f"\n{got}"
    return doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
