"""transformers' Trainer fine-tunes on two cards, with nothing in the program that names a device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, MixtralConfig, MixtralForCausalLM

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


@pytest.mark.hpu(lazy=False)
def test_a_compiled_model_learns_as_without() -> None:
    """By the card's own backend, to the last bit."""
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    words, labels = torch.randint(20, (4, 12), device="hpu"), torch.tensor([0, 1, 0, 1], device="hpu")
    gradients = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config).to("hpu").eval()
        call = torch.compile(model, backend="hpu_backend") if compiled else model
        call(input_ids=words, labels=labels).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])

    assert all(torch.equal(traced, plain) for plain, traced in zip(*gradients, strict=True))


@pytest.mark.hpu(lazy=False)
def test_a_compiled_model_with_dropout_trains() -> None:
    """Which takes another algorithm of attention."""
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertForSequenceClassification(config).to("hpu").train()
    words, labels = torch.randint(20, (4, 12), device="hpu"), torch.tensor([0, 1, 0, 1], device="hpu")
    compiled: Any = torch.compile(model, backend="hpu_backend")

    compiled(input_ids=words, labels=labels).loss.backward()

    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_mixture_of_experts_runs() -> None:
    """Transformers counts the tokens of each expert with a histogram of integers."""
    config = MixtralConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        num_local_experts=4,
    )
    model = MixtralForCausalLM(config).to("hpu")
    words = torch.tensor([[5, 6, 7]], device="hpu")

    model(words, labels=words).loss.backward()

    assert all(parameter.grad is not None for parameter in model.parameters())
