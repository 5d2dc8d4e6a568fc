"""Links of Markdown documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import links
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def _faults(root: Path, name: str, text: str) -> list[str]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")
    return list(links.faults(root / name, root))


def test_this_repository_has_no_dead_link(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does it link to a heading that is not there."""
    assert links.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["[a](page.md)", "![a](page.md)", "[a](page.md#its-title)", "[a](https://example.com)"]
)
def test_a_link_may_lead_to_what_is_there(text: str, tmp_path: Path) -> None:
    """A file, a heading, or another place."""
    (tmp_path / "page.md").write_text("# Its *title*\n", encoding="utf-8")

    assert _faults(tmp_path, "other.md", text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a](page.txt)", "leads to no file"),
        ("![a](../page.md)", "leads to no file"),
        ("[a](page.md#title)", "leads to no heading of page.md"),
        ("| a |\n|---|\n| [a](#none) |", "leads to no heading of other.md"),
    ],
)
def test_a_dead_link_is_told(text: str, words: str, tmp_path: Path) -> None:
    """With where it stands and where it leads."""
    (tmp_path / "page.md").write_text("# Its title\n", encoding="utf-8")

    (fault,) = _faults(tmp_path, "other.md", f"Text.\n\n{text}\n")

    assert fault.startswith("other.md:")
    assert words in fault


def test_links_in_code_are_none(tmp_path: Path) -> None:
    """What looks like one there is code."""
    assert _faults(tmp_path, "page.md", "`[a](none.md)`\n\n```text\n[a](none.md)\n```\n") == []


def test_a_packages_readme_stands_alone(tmp_path: Path) -> None:
    """A relative link is dead on a package index, also to a file that is there; one to its own headings is not."""
    (fault,) = _faults(tmp_path, "packages/own/README.md", "# A\n\n[a](README.md) [b](#a)\n")

    assert "is relative" in fault


def test_headings_that_repeat_are_numbered() -> None:
    """As the hosts of repositories do."""
    assert links.anchors("# A `b`, c!\n\n## Same\n\n## Same\n") == {"a-b-c", "same", "same-1"}
