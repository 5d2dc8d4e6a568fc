"""transformers' Trainer fine-tunes on two devices, without naming a device."""

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
    """Return the folder of the trained model."""
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def trained(run_ranks: Callable[..., list[str]], folder: Path) -> dict[str, Any]:
    """Return the results of rank 0."""
    (line,) = [line for line in run_ranks("fine_tuning.py", folder) if line.startswith('{"device"')]
    known: dict[str, Any] = json.loads(line)
    return known


def test_the_trainer_selects_the_devices(trained: dict[str, Any]) -> None:
    """Each rank has one, and the backend is hccl."""
    assert trained["device"].startswith("hpu")
    assert trained["model"] == "hpu:0"
    assert (trained["world_size"], trained["backend"], trained["parallel"]) == (2, "hccl", "DistributedDataParallel")


def test_the_trainer_learns(trained: dict[str, Any]) -> None:
    """The first word of a sentence determines its class."""
    losses = trained["losses"]

    assert losses[-1] < losses[0] / 4


def test_a_machine_without_devices_can_load_the_model(trained: dict[str, Any], folder: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(folder)

    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


@pytest.mark.hpu(lazy=False)
def test_a_compiled_model_trains_as_an_uncompiled_one() -> None:
    """The weights are bitwise equal."""
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
    """Dropout selects another attention algorithm."""
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
