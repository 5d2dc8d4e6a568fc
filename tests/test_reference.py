"""Running the code blocks of documents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent

_RST = """
Title
=====

Text with a :class:`~role.of.Sphinx`.

Section
-------

.. code-block:: python

    trainer = Trainer(devices=8)

.. code-block:: bash

    pip install something
"""
_MARKDOWN = """
# Title

## Section

```python
trainer = Trainer(devices=8)
```
"""
_PAGE = """Section¶
Make a trainer = Trainer of your own, like this:
# with eight cards
trainer = Trainer(devices=8, num_nodes=2)
On the first machine:
MASTER_ADDR=<MASTER_ADDR> NODE_RANK=0 WORLD_SIZE=16
python -m some_module
On the second machine:
MASTER_ADDR=<MASTER_ADDR> NODE_RANK=1 WORLD_SIZE=16
python -m some_module
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of reference/, which stand alone."""
    monkeypatch.syspath_prepend(ROOT / "reference")
    yield
    for name in ("documents", "missing", "programs", "run"):
        sys.modules.pop(name, None)


def _blocks(folder: Path, name: str, text: str) -> list[Any]:
    import documents

    (folder / name).write_text(text, encoding="utf-8")
    return list(documents.read(folder / name))


def _programs(folder: Path, code: str) -> list[Any]:
    import documents
    import programs

    return list(programs.of_block(documents.Block("page.md", 1, "Section", "python", code), []))


@pytest.mark.parametrize(
    ("name", "text", "line"), [("page.rst", _RST, 12), ("page.md", _MARKDOWN, 7)], ids=["reStructuredText", "Markdown"]
)
def test_code_blocks_are_found(name: str, text: str, line: int, tmp_path: Path) -> None:
    """With their lines, the titles of their sections, and their languages."""
    block = _blocks(tmp_path, name, text)[0]

    assert (block.document, block.line, block.title, block.language) == (name, line, "Section", "python")
    assert block.text.strip() == "trainer = Trainer(devices=8)"


def test_commands_are_blocks_too(tmp_path: Path) -> None:
    """Of the language that the document says."""
    assert [block.language for block in _blocks(tmp_path, "page.rst", _RST)] == ["python", "bash"]


def test_code_is_told_from_the_text_of_a_page(tmp_path: Path) -> None:
    """A statement with the comment above it, and commands with their variables; sentences are none."""
    statement, first, second = _blocks(tmp_path, "page.txt", _PAGE)

    assert (statement.line, statement.title) == (4, "Section")
    assert statement.text == "# with eight cards\ntrainer = Trainer(devices=8, num_nodes=2)\n"
    assert first.text == "MASTER_ADDR=<MASTER_ADDR> NODE_RANK=0 WORLD_SIZE=16 python -m some_module\n"
    assert second.language == "bash"


def test_other_documents_are_an_error(tmp_path: Path) -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match=r"must end in \.rst, \.md, \.txt, got 'page\.doc'"):
        _blocks(tmp_path, "page.doc", "")


def test_each_trainer_is_a_program(tmp_path: Path) -> None:
    """With everything of the block that makes no Trainer, and with as many cards as it names."""
    code = "import torch\ntrainer = Trainer(devices=1)\nfirst = 1\ntrainer = Trainer(devices=8)\n"

    one, eight = _programs(tmp_path, code)

    assert (one.cards, eight.cards) == (1, 8)
    for program, own, other in ((one, 1, 8), (eight, 8, 1)):
        assert f"    trainer = Trainer(devices={own})\n" in program.text
        assert f"devices={other}" not in program.text
        assert "import torch\n    " in program.text
        assert "    first = 1\n" in program.text


def test_what_is_missing_is_defined(tmp_path: Path) -> None:
    """Once, before the block; what the block defines itself is left alone."""
    (program,) = _programs(tmp_path, "from somewhere import nn\ntrainer = Trainer(nn, batch_size)\n")

    before = program.text.partition("if __name__")[0].splitlines()
    assert before == ["from lightning.pytorch import Trainer", "batch_size = 64"]


def test_what_is_used_before_it_is_defined_is_missing(tmp_path: Path) -> None:
    """As where a block converts a model; a function's body is run later, and may use what comes after it."""
    (program,) = _programs(tmp_path, "def own():\n    return List\nList = 1\nnn = own(nn)\ntrainer = Trainer(nn)\n")

    before = program.text.partition("if __name__")[0].splitlines()
    assert before == ["from lightning.pytorch import Trainer", "from torch import nn"]


def test_the_framework_is_the_blocks(tmp_path: Path) -> None:
    """Names come from the one that it imports."""
    (program,) = _programs(tmp_path, "import pytorch_lightning as pl\ntrainer = pl.Trainer(callbacks=[TestCB()])\n")

    assert program.framework == "pytorch_lightning"
    assert "from pytorch_lightning import Callback as TestCB\n" in program.text


def test_a_body_that_is_left_out_is_filled(tmp_path: Path) -> None:
    """With the methods of a whole model; an ellipsis between statements stays."""
    (program,) = _programs(tmp_path, "class Own(LightningModule):\n    ...\n...\ntrainer = Trainer()\n")

    assert "        __import__('fixtures').complete(vars())\n    ...\n" in program.text


def test_machines_are_those_of_the_commands(tmp_path: Path) -> None:
    """A training on two machines is started by the two commands of its document."""
    import programs

    statement, *commands = _blocks(tmp_path, "page.txt", _PAGE)
    (program,) = programs.of_block(statement, commands)

    assert [node["NODE_RANK"] for node in program.nodes] == ["0", "1"]


@pytest.mark.parametrize(
    ("ranks", "on", "good"), [([0, 1], "hpu", True), ([0], "hpu", False), ([0, 1], "cpu", False), ([], "hpu", False)]
)
def test_an_outcome_is_good_if_all_ranks_trained_on_cards(
    ranks: list[int], on: str, good: bool, tmp_path: Path
) -> None:
    """One that does not report, or trains elsewhere, makes it a failure."""
    import json

    import run

    (program,) = _programs(tmp_path, "trainer = Trainer(devices=2)\n")
    report = {"ranks": 2, "strategy": "S", "precision": "32-true", "steps": 1, "on": on}
    log = "\n".join("reference " + json.dumps({**report, "rank": rank}) for rank in ranks)

    assert run._judge(program, [0], [log], 1.0).good is good


def test_a_program_that_fails_is_a_failure(tmp_path: Path) -> None:
    """With what it wrote."""
    import run

    (program,) = _programs(tmp_path, "trainer = Trainer(devices=2)\n")
    outcome = run._judge(program, [1], ["no such luck"], 1.0)

    assert outcome.good is False
    assert "no such luck" in outcome.words


def test_a_block_trains_on_a_simulated_card(tmp_path: Path) -> None:
    """From the document to the training."""
    import run

    (tmp_path / "page.md").write_text("# Run\n\n```python\ntrainer = Trainer(accelerator='hpu', devices=1)\n```\n")

    (outcome,) = run.outcomes(tmp_path, "")

    assert outcome.good, outcome.words
    assert outcome.words == "SingleHPUStrategy, 32-true, 1 rank(s), on hpu"
