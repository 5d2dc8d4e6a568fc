"""What becomes of the code blocks of this repository's documents."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of reference/, which stand alone."""
    monkeypatch.syspath_prepend(ROOT / "reference")
    yield
    for name in ("documents", "missing", "pages", "programs", "run", "walk"):
        sys.modules.pop(name, None)


def _plan(folder: Path, text: str) -> list[Any]:
    import pages

    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return list(pages.plan(page, folder))


def _block(language: str, text: str = "text", comment: str = "") -> str:
    return f"{comment}\n```{language}\n{text}\n```\n\n"


def test_every_document_of_this_repository_explains_its_blocks() -> None:
    """Whoever adds one that is not run says why."""
    import pages
    import walk

    found = [path for pattern in walk.DOCUMENTS for path in ROOT.glob(pattern) if "_build" not in path.parts]

    assert len([step for path in found for step in pages.plan(path, ROOT)]) > len(found)


def test_what_the_readme_says_to_install_is_installed() -> None:
    """Each command of its table is a block of some page, which is run."""
    import pages
    import walk

    table = re.findall(r"\| `(pip install [^`]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"))
    found = [path for pattern in walk.DOCUMENTS for path in ROOT.glob(pattern) if "_build" not in path.parts]
    run = {step.block.text.strip() for path in found for step in pages.plan(path, ROOT) if step.fate == "shell"}

    assert len(table) == len(list(ROOT.glob("packages/*/pyproject.toml")))
    assert set(table) <= run


@pytest.mark.parametrize("language", ["yaml", "text", "", "pyhton", "{code-block} python"])
def test_a_block_that_nothing_runs_must_be_explained(language: str, tmp_path: Path) -> None:
    """The error says where it is and what may stand before it."""
    import pages

    with pytest.raises(pages.PageError, match=r"page\.md:3: .* no comment explains it: put `<!-- not run"):
        _plan(tmp_path, _block(language))


def test_python_and_shell_blocks_are_run(tmp_path: Path) -> None:
    """Without a comment, or with one that is no direction."""
    steps = _plan(tmp_path, _block("python") + _block("bash") + _block("sh", comment="<!-- a note -->"))

    assert [step.fate for step in steps] == ["python", "shell", "shell"]


def test_a_reason_keeps_a_block_from_being_run(tmp_path: Path) -> None:
    """It may take several lines."""
    (step,) = _plan(tmp_path, _block("bash", comment="<!-- not run: needs\ntwo machines -->"))

    assert (step.fate, step.words) == ("not run", "needs two machines")


@pytest.mark.parametrize("said", ["not run", "cards: none", "output: all", "file"])
def test_a_direction_that_says_too_little_is_an_error(said: str, tmp_path: Path) -> None:
    """A reason, a number, a way to compare or a name is missing."""
    import pages

    with pytest.raises(pages.PageError):
        _plan(tmp_path, _block("python") + _block("bash", comment=f"<!-- {said} -->"))


def test_a_comment_counts_for_the_block_right_after_it(tmp_path: Path) -> None:
    """Not for one that text lies before."""
    steps = _plan(
        tmp_path, "<!-- cards: 8 -->\n\nText.\n\n" + _block("bash") + _block("bash", comment="<!-- cards: 2 -->")
    )

    assert [step.cards for step in steps] == [None, 2]


def test_a_file_must_be_used(tmp_path: Path) -> None:
    """By a command of the same page that comes later."""
    import pages

    file = _block("python", comment="<!-- file: folder/own.py -->")

    assert [step.fate for step in _plan(tmp_path, file + _block("bash", "python folder/own.py"))] == ["file", "shell"]
    with pytest.raises(pages.PageError, match=r"'folder/own\.py', and no later command names it"):
        _plan(tmp_path, _block("bash", "python folder/own.py") + file)


def test_a_file_that_is_shown_from_beside_the_page_is_one(tmp_path: Path) -> None:
    """With its own text."""
    (tmp_path / "own.py").write_text("print()\n", encoding="utf-8")

    file, _ = _plan(tmp_path, "```{literalinclude} own.py\n```\n" + _block("bash", "python own.py"))

    assert (file.fate, file.words, file.block.text) == ("file", "own.py", "print()\n")


def test_output_needs_a_block_that_printed_it(tmp_path: Path) -> None:
    """One before it that is run."""
    import pages

    with pytest.raises(pages.PageError, match="no block before it is run"):
        _plan(tmp_path, _block("bash", comment="<!-- not run: why -->") + _block("text", comment="<!-- output -->"))


@pytest.mark.parametrize(
    ("how", "shown", "printed", "same"),
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
def test_shown_output_is_compared(how: str, shown: str, printed: str, same: bool, tmp_path: Path) -> None:
    """Line by line, as far as its comment says."""
    import pages

    _, output = _plan(tmp_path, _block("bash") + _block("text", shown, f"<!-- output{how} -->"))

    assert pages.is_shown(output, printed) is same


def test_a_page_is_walked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command finds the file of the block before it; wrong output and a command that fails are failures."""
    import walk

    (tmp_path / "page.md").write_text(
        _block("text", "said", "<!-- file: own.txt -->")
        + _block("bash", "cat own.txt")
        + _block("text", "said", "<!-- output -->")
        + _block("text", "unsaid", "<!-- output -->")
        + _block("bash", "cat own.txt | false"),
        encoding="utf-8",
    )
    monkeypatch.setattr(walk, "ROOT", tmp_path)

    assert [outcome.good for outcome in walk.outcomes(tmp_path, "")] == [True, True, True, False, False]


def test_nothing_is_run_of_pages_with_an_unexplained_block(tmp_path: Path) -> None:
    """All are read first."""
    import pages
    import walk

    (tmp_path / "a.md").write_text(_block("bash", "touch run"), encoding="utf-8")
    (tmp_path / "b.md").write_text(_block("yaml"), encoding="utf-8")

    with pytest.raises(pages.PageError, match=r"b\.md:3"):
        next(walk.outcomes(tmp_path, ""))
