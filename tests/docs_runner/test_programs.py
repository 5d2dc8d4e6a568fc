"""Tests of `docs_runner.programs`."""

from __future__ import annotations

from docs_runner.programs import make_programs

_COMMANDS = ["NODE_RANK=0 WORLD_SIZE=16 python -m some_module", "NODE_RANK=1 WORLD_SIZE=16 python -m some_module"]


def _definitions(block: str) -> list[str]:
    (program,) = make_programs(block, [])
    return program.text.partition("if __name__")[0].splitlines()


def test_each_trainer_is_a_program() -> None:
    """A program has everything but the other Trainers, and as many cards as its Trainer names."""
    block = "import torch\ntrainer = Trainer(devices=1)\nfirst = 1\ntrainer = Trainer(devices=8)\n"

    first, second = make_programs(block, [])

    assert (first.devices, second.devices) == (1, 8)
    for program, own, other in ((first, 1, 8), (second, 8, 1)):
        assert f"    trainer = Trainer(devices={own})\n" in program.text
        assert f"devices={other}" not in program.text
        assert "import torch\n    " in program.text
        assert "    first = 1\n" in program.text


def test_missing_names_are_defined_once() -> None:
    """A name that the block defines itself is left alone."""
    definitions = _definitions("from somewhere import nn\ntrainer = Trainer(nn, batch_size)\n")

    assert definitions == ["from lightning.pytorch import Trainer", "batch_size = 64"]


def test_name_used_before_its_definition_is_missing() -> None:
    """The value of an assignment is evaluated first."""
    definitions = _definitions("List = 1\nnn = own(nn, List)\ntrainer = Trainer(nn)\n")

    assert definitions == ["from lightning.pytorch import Trainer", "from torch import nn"]


def test_definitions_come_from_the_framework_of_the_block() -> None:
    definitions = _definitions("import pytorch_lightning as pl\ntrainer = pl.Trainer(callbacks=[TestCB()])\n")

    assert definitions == ["from pytorch_lightning import Callback as TestCB"]


def test_ellipsis_body_gets_the_methods_of_a_model() -> None:
    """An ellipsis between statements stays."""
    (program,) = make_programs("class Own(LightningModule):\n    ...\n...\ntrainer = Trainer()\n", [])

    assert "        __import__('fixtures').add_missing_methods(vars())\n    ...\n" in program.text


def test_nodes_come_from_the_commands() -> None:
    (program,) = make_programs("trainer = Trainer(devices=8, num_nodes=2)\n", _COMMANDS)

    assert [node["NODE_RANK"] for node in program.nodes] == ["0", "1"]
