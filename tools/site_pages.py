"""Parts of the site that are generated while Sphinx reads its pages.

A page has the line `<!-- generated: NAME -->` where the part of that name goes; `PARTS` has the names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import constraints
import verification
from hpu_doctor.known_errors import known_errors

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parent.parent
# A block of Python that imports Lightning.
_PYTHON_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LIGHTNING: Final = re.compile(r"^(\s*(?:from|import) )lightning\b(\.pytorch|\.fabric)?", re.MULTILINE)


def errors() -> str:
    """Return the errors that `hpu-doctor explain` knows as a list of definitions, in the order of their texts."""
    parts = []
    for error in sorted(known_errors(), key=lambda error: error.patterns[0].lower().lstrip("'`\"{} ")):
        texts = ", ".join(f"`` {pattern.replace('{}', '...')} ``" for pattern in error.patterns)
        seen = " It was reported from a real card." if error.on_card else ""
        parts.append(f"{texts}\n: {error.cause}{seen}\n\n  **Cure:** {error.cure}\n")
    return "\n".join(parts)


def changelogs() -> str:
    """Return the version and the changelog of each package, the notes of its next release first."""
    parts = []
    for folder in sorted(ROOT.glob("packages/*/")):
        about = next(folder.glob("src/*/__about__.py")).read_text(encoding="utf-8")
        version = re.search(r'__version__ = "(.+)"', about)
        if version is None:
            raise ValueError(f"{folder.name} must have `__version__` in its __about__.py")
        _, _, released = (
            (folder / "CHANGELOG.md").read_text(encoding="utf-8").partition("towncrier release notes start -->")
        )
        notes = [path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob("changes/*.md"))]
        parts += [f"## {folder.name} {version[1]}", ""]
        if notes:
            parts += ["### Not released yet", "", *(f"- {note}" for note in notes), ""]
        # A release is a heading of the second level there, and its kinds of changes of the third.
        parts += [re.sub(r"^#", "##", released.strip(), flags=re.MULTILINE), ""]
    return "\n".join(parts)


def releases() -> str:
    """Return the table of all releases, with notes and sources."""
    return constraints.release_details(constraints.load())


PARTS: Final[dict[str, Callable[[], str]]] = {
    "assumptions": verification.tables,
    "changelogs": changelogs,
    "errors": errors,
    "releases": releases,
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


def add_tabs(text: str) -> str:
    """Return a page with a second tab for `pytorch_lightning` beside each block of Python that imports `lightning`."""
    return _PYTHON_BLOCK.sub(_tabs, text)


def _tabs(match: re.Match[str]) -> str:
    other = _LIGHTNING.sub(_rename, match[1])
    if other == match[1]:
        return match[0]
    tabs = (("lightning", match[1]), ("pytorch_lightning", other))
    return "\n".join(f":::{{tab}} {name}\n```python\n{code}```\n:::" for name, code in tabs)


def _rename(match: re.Match[str]) -> str:
    return f"{match[1]}{'lightning_fabric' if match[2] == '.fabric' else 'pytorch_lightning'}"
