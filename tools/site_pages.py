"""Parts of the site that are generated while Sphinx reads its pages.

A page has the line `<!-- generated: NAME -->` where the part of that name goes; `PARTS` has the names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import verification
from hpu_doctor.known_errors import known_errors

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parent.parent


def errors() -> str:
    """Return the errors that `hpu-doctor explain` knows as a list of definitions, in the order of their texts."""
    parts = []
    for error in sorted(known_errors(), key=lambda error: error.patterns[0].lower().lstrip("'`\"{} ")):
        texts = ", ".join(f"`` {pattern.replace('{}', '...')} ``" for pattern in error.patterns)
        seen = " It was reported from a real card." if error.on_card else ""
        parts.append(f"{texts}\n: {error.cause}{seen}\n\n  **Cure:** {error.cure}\n")
    return "\n".join(parts)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "assumptions": verification.tables,
    "errors": errors,
}


def fill(text: str) -> str:
    """Return a page with its generated parts.

    Raises:
        KeyError: The page names a part that does not exist.
    """
    return re.sub(r"^<!-- generated: (\S+) -->$", lambda match: PARTS[match[1]](), text, flags=re.MULTILINE)


def relink(text: str) -> str:
    """Return the README with links to pages of the site; links to other files become their names."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\]\((packages/hpu-\w+)\)", r"](\1.md)", text).replace("](CONTRIBUTING.md)", "](contributing.md)")
    return re.sub(r"\[([^]]*)\]\((?:examples/|LICENSE)[^)]*\)", r"`\1`", text)
