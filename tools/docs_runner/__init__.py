"""Runner for the code blocks of documents, on simulated cards."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PATTERNS: Final = ("*.md", "packages/*/README.md", "packages/*/docs/*.md", "docs/**/*.md")


def documents() -> list[Path]:
    """Return the documents of this repository whose code blocks are checked."""
    return sorted({path for pattern in _PATTERNS for path in ROOT.glob(pattern) if "_build" not in path.parts})
