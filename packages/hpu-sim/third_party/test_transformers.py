"""transformers' Trainer fine-tunes on two devices, without naming a device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Trainer,
    TrainingArguments,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

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


def _llama(attention: str = "sdpa") -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config)


def _gpt2() -> GPT2LMHeadModel:
    config = GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=16, use_cache=False)
    return GPT2LMHeadModel(config)


def _sentences(count: int) -> list[dict[str, torch.Tensor]]:
    words = torch.randint(20, (count, 8), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row} for row in words]


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing")  # Programs have the older name.
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5},
        {"optim": "adamw_torch_fused"},
        {"optim": "adafactor"},
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [_llama, _gpt2])
def test_a_resumed_training_equals_an_uninterrupted_one(
    make: Callable[[], torch.nn.Module], options: dict[str, Any], tmp_path: Path
) -> None:
    """It evaluates on the way. Dropout draws the same numbers after a resume."""

    def train(steps: int, checkpoint: Path | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            max_steps=steps,
            save_steps=2,
            eval_strategy="steps",
            eval_steps=2,
            learning_rate=1e-2,
            report_to=[],
            disable_tqdm=True,
            **options,
        )
        trainer = Trainer(model=make(), args=arguments, train_dataset=_sentences(32), eval_dataset=_sentences(8))
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        assert trainer.evaluate()["eval_loss"] > 0
        return [parameter.detach().cpu() for parameter in trainer.model.parameters()]

    whole = train(4, None)
    resumed = train(4, tmp_path / "checkpoint-2")

    for expected, actual in zip(whole, resumed, strict=True):
        torch.testing.assert_close(actual, expected)


def test_fused_attention_as_the_models_attention() -> None:
    """As model code for Gaudi registers it. Losses and gradients are those of torch's attention."""

    def fused(  # noqa: PLR0913, PLR0917 - the signature of transformers
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        is_causal = attention_mask is None and query.shape[2] > 1
        with hpu.sdp_kernel(enable_recompute=module.training):
            output = FusedSDPA.apply(
                query, key, value, attention_mask, 0.0, is_causal, scaling, "fast", None, None, "None"
            )
        return output.transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS["gaudi_fused_sdpa"] = fused
    words = torch.tensor([[5, 6, 7, 8]], device="hpu")
    results = []
    for attention in ("sdpa", "gaudi_fused_sdpa"):
        torch.manual_seed(0)
        model = _llama(attention).to("hpu")
        loss = model(words, labels=words).loss
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])

    torch.testing.assert_close(results[1], results[0])


def test_a_model_on_the_device_generates(tmp_path: Path) -> None:
    """Greedily, by sampling, with beams and with a static cache; a saved model gives the same words."""
    torch.manual_seed(0)
    model = _llama().to("hpu").eval()
    model.save_pretrained(tmp_path)
    on_cpu = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    words = torch.tensor([[3, 4, 5]])
    options = {"max_new_tokens": 4, "pad_token_id": 0, "do_sample": False}

    for more in ({}, {"num_beams": 2}, {"cache_implementation": "static"}):
        generated = model.generate(words.to("hpu"), **options, **more)
        assert generated.tolist() == on_cpu.generate(words, **options, **more).tolist()
    assert model.generate(words.to("hpu"), max_new_tokens=2, do_sample=True, pad_token_id=0).shape == (1, 5)
