"""transformers' Trainer fine-tunes on two cards, with nothing in the program that names a device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from transformers import BertForSequenceClassification

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.hpu(devices=2, lazy=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the trained model is."""
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def trained(run_ranks: Callable[..., list[str]], folder: Path) -> dict[str, Any]:
    """What the first rank knows in the end."""
    (line,) = [line for line in run_ranks("fine_tuning.py", folder) if line.startswith('{"device"')]
    known: dict[str, Any] = json.loads(line)
    return known


def test_the_trainer_chooses_the_cards(trained: dict[str, Any]) -> None:
    """One per rank, with hccl between them."""
    assert trained["device"].startswith("hpu")
    assert trained["model"] == "hpu:0"
    assert (trained["world_size"], trained["backend"], trained["parallel"]) == (2, "hccl", "DistributedDataParallel")


def test_the_trainer_learns(trained: dict[str, Any]) -> None:
    """The classes can be told apart by the first word."""
    losses = trained["losses"]

    assert losses[-1] < losses[0] / 4


def test_a_machine_without_cards_can_load_the_model(trained: dict[str, Any], folder: Path) -> None:
    """Saved tensors are not bound to hpu."""
    model = BertForSequenceClassification.from_pretrained(folder)

    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
