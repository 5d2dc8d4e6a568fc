"""The register of `hpu-doctor verify` in this repository: its page, and markers that name its entries.

`tables` is the page of the register, which site_pages.py puts into the site. A test lists markers that name no entry.

A statement about cards names the entries that show it, in a comment that readers of the text do not see: a line
`# hpu-doctor verify: id, id` after a docstring or above the code, and `<!-- verify: id, id -->` on a page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_doctor.verify import register
from hpu_doctor.verify.assumption import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_doctor.verify.assumption import Assumption

ROOT = Path(__file__).resolve().parent.parent

# In the comment after a docstring, or in a hidden one on a page.
MARKER = re.compile(r"(?:# hpu-doctor |<!-- )verify: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")


def tables() -> str:
    """Return the register as a table for each subject."""
    assumptions = register.assumptions()
    subjects = dict.fromkeys(assumption.subject for assumption in assumptions)
    lines = [f"There are {len(assumptions)}.", ""]
    for subject in subjects:
        lines += [
            f"## {subject}",
            "",
            "| id | statement | claimed for | source | packages |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(assumption) for assumption in assumptions if assumption.subject == subject]
        lines.append("")
    return "\n".join(lines)


def _row(assumption: Assumption) -> str:
    cells = (
        assumption.id,
        f"{assumption.statement} Expected: `{describe(assumption.expected)}`",
        assumption.scope,
        assumption.source.replace("__", "\\_\\_"),
        ", ".join(sorted(assumption.means)),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def documents(root: Path = ROOT) -> list[Path]:
    """Return the files whose statements are looked at: pages, and sources of the packages without the register."""
    pages = [*root.glob("docs/**/*.md"), *root.glob("packages/*/README.md"), *root.glob("packages/*/docs/*.md")]
    sources = [path for path in root.glob("packages/*/src/**/*.py") if "verify" not in path.relative_to(root).parts]
    return sorted(path for path in [*pages, *sources] if "_build" not in path.parts)


def check_markers(paths: Sequence[Path]) -> list[str]:
    """Return the names in markers that are no entry of the register."""
    known = {assumption.id for assumption in register.assumptions()}
    marked = [(path, match[1]) for path in paths for match in MARKER.finditer(path.read_text(encoding="utf-8"))]
    names = ((path, name) for path, text in marked for name in text.split(", "))
    return [f"{path}: {name!r} is no entry of the register" for path, name in names if name not in known]
