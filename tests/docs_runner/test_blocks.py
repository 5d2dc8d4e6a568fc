"""Tests of `docs_runner.blocks`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from sybil import Document

from docs_runner import ROOT, blocks, documents

if TYPE_CHECKING:
    from pathlib import Path

_SPHINX_TEXT = """
Title
=====

Text with a :class:`~role.of.Sphinx`.

.. code-block:: python

    trainer = Trainer(devices=8)

.. code-block:: bash

    pip install something
"""


def _parse(folder: Path, text: str, name: str = "page.md", *, root: Path | None = None) -> list[blocks.Block]:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ROOT", root or folder)
        document = Document.parse(str(folder / name), blocks.parse)
    return [region.parsed for _, region in document.regions]


def _block(language: str, text: str = "text", comment: str = "") -> str:
    return f"{comment}\n```{language}\n{text}\n```\n\n"


def _parse_all() -> list[blocks.Block]:
    parsed = [Document.parse(str(path), blocks.parse) for path in documents()]
    return [region.parsed for document in parsed for _, region in document.regions]


def test_all_own_blocks_are_valid() -> None:
    assert len(_parse_all()) > len(documents())


def test_every_package_is_in_the_readme_and_is_installed_by_a_block() -> None:
    """The README's table links to each package, whose README has an install command that `nox -s docs_blocks` runs."""
    names = [path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")]
    linked = re.findall(
        r"^\|.*\| \[.+\]\(packages/([^)]+)\) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )

    assert sorted(linked) == sorted(names)
    for name in names:
        parsed = Document.parse(str(ROOT / "packages" / name / "README.md"), blocks.parse)
        commands = [region.parsed.text for _, region in parsed.regions if region.parsed.kind == "shell"]
        assert any(re.search(rf"^pip install .*\./packages/{name}\b", text) for text in commands), name


@pytest.mark.parametrize("language", ["yaml", "text", "", "pyhton", "{code-block} python"])
def test_block_without_explanation_raises(language: str, tmp_path: Path) -> None:
    with pytest.raises(blocks.BlockError, match=r"page\.md:2: .* no comment explains it: put `<!-- not run"):
        _parse(tmp_path, _block(language))


def test_reason_skips_a_block(tmp_path: Path) -> None:
    """The reason may take several lines."""
    (block,) = _parse(tmp_path, _block("bash", comment="<!-- not run: needs\ntwo machines -->"))

    assert (block.kind, block.argument) == ("skip", "needs two machines")


@pytest.mark.parametrize("comment", ["not run", "cards: none", "output: all", "file"])
def test_wrong_argument_of_a_comment_raises(comment: str, tmp_path: Path) -> None:
    with pytest.raises(blocks.BlockError):
        _parse(tmp_path, _block("python") + _block("bash", comment=f"<!-- {comment} -->"))


def test_file_must_be_named_by_a_later_command(tmp_path: Path) -> None:
    file = _block("python", comment="<!-- file: folder/own.py -->")

    assert [block.kind for block in _parse(tmp_path, file + _block("bash", "python folder/own.py"))] == [
        "file",
        "shell",
    ]
    with pytest.raises(blocks.BlockError, match=r"no later command names the file 'folder/own\.py'"):
        _parse(tmp_path, _block("bash", "python folder/own.py") + file)


def test_output_must_follow_a_block_that_runs(tmp_path: Path) -> None:
    with pytest.raises(blocks.BlockError, match="no block before this output is run"):
        _parse(tmp_path, _block("bash", comment="<!-- not run: why -->") + _block("text", comment="<!-- output -->"))


@pytest.mark.parametrize(
    ("options", "shown", "printed", "expected"),
    [
        ("", "one\ntwo", "one\ntwo  \n", True),
        ("", "one", "one\ntwo\n", False),
        ("", "one\n...\nthree", "one\n2\n3\nthree\n", True),
        (": part", "two", "one\ntwo\nthree\n", True),
        (": part", "one", "one\ntwo\n", True),
        (": part", "wo", "one\ntwo\nthree\n", False),
        (": part", "three\none", "one\ntwo\nthree\n", False),
        ("", "1.5 s", "2.25 s\n", False),
        (": figures vary", "took 1.5 s", "took 22.25 s\n", True),
        (": figures vary", "took 1.5 s", "took long\n", False),
        (": figures vary", "│ 0.5  │\n├──────┤", "│ 0.25    │\n├─────────┤\n", True),
    ],
)
def test_output_comparison(options: str, shown: str, printed: str, expected: bool, tmp_path: Path) -> None:
    _, output = _parse(tmp_path, _block("bash") + _block("text", shown, f"<!-- output{options} -->"))

    assert blocks.matches_output(output, printed) is expected


def test_sphinx_document(tmp_path: Path) -> None:
    python, command = _parse(tmp_path, _SPHINX_TEXT, "page.rst", root=ROOT)

    assert (python.location, python.kind, python.text.strip()) == (
        "page.rst:7",
        "python",
        "trainer = Trainer(devices=8)",
    )
    assert command.kind == "skip"


def test_unknown_command_of_an_external_document_raises(tmp_path: Path) -> None:
    with pytest.raises(blocks.BlockError, match="EXTERNAL_COMMANDS does not know"):
        _parse(tmp_path, _block("bash", "rm -r x"), root=ROOT)
