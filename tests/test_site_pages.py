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


def test_every_package_has_a_version_and_its_changes() -> None:
    text = site_pages.changelogs()

    names = sorted(path.name for path in site_pages.ROOT.glob("packages/*/"))
    assert re.findall(r"^## (\S+) \d+\.\d+\.\d+$", text, re.MULTILINE) == names
    for name in names:
        released = (site_pages.ROOT / "packages" / name / "CHANGELOG.md").read_text(encoding="utf-8").count("\n## ")
        section = text.partition(f"## {name} ")[2].partition("\n## ")[0]
        assert len(re.findall(r"^### \d", section, re.MULTILINE)) == released, name


@pytest.mark.parametrize("page", sorted(site_pages.ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem)
def test_generated_parts_exist(page: object) -> None:
    names = re.findall(r"^<!-- generated: (\S+) -->$", page.read_text("utf-8"), re.MULTILINE)  # type: ignore[attr-defined]

    assert set(names) <= site_pages.PARTS.keys()


def test_a_block_that_imports_lightning_gets_a_second_tab() -> None:
    page = (
        "Text\n\n```python\nimport lightning as L\nfrom lightning.fabric import Fabric\nimport lightning_habana\n```\n"
    )

    assert site_pages.add_tabs(page).split("\n:::\n")[1] == (
        ":::{tab} pytorch_lightning\n```python\nimport pytorch_lightning as L\nfrom lightning_fabric import Fabric\n"
        "import lightning_habana\n```"
    )


def test_other_blocks_stay() -> None:
    page = "```python\nimport torch\n```\n\n```bash\npip install lightning\n```\n"

    assert site_pages.add_tabs(page) == page


def test_links_of_the_readme_are_pages_of_the_site() -> None:
    text = site_pages.relink((site_pages.ROOT / "README.md").read_text("utf-8"))

    pages = re.findall(r"\]\(([^)#]+)", text)
    assert "packages/hpu-core.md" in pages
    assert [page for page in pages if not (site_pages.ROOT / "docs" / page).is_file()] == []
