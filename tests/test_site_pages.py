"""Tests of the generated parts of the site."""

from __future__ import annotations

import re

import pytest

import site_pages
from hpu_doctor.known_errors import known_errors


def test_every_known_error_is_in_the_index_with_its_cure() -> None:
    page = site_pages.errors()

    assert page.count("**Cure:**") == len(known_errors())
    assert all(error.cause in page and f"**Cure:** {error.cure}\n" in page for error in known_errors())


@pytest.mark.parametrize("page", sorted(site_pages.ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem)
def test_generated_parts_exist(page: object) -> None:
    names = re.findall(r"^<!-- generated: (\S+) -->$", page.read_text("utf-8"), re.MULTILINE)  # type: ignore[attr-defined]

    assert set(names) <= site_pages.PARTS.keys()


def test_links_of_the_readme_are_pages_of_the_site() -> None:
    text = site_pages.relink((site_pages.ROOT / "README.md").read_text("utf-8"))

    pages = re.findall(r"\]\(([^)#]+)", text)
    assert "packages/hpu-core.md" in pages
    assert [page for page in pages if not (site_pages.ROOT / "docs" / page).is_file()] == []
