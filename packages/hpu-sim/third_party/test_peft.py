"""PEFT adapts a model with LoRA, and merges the adapter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = [
    pytest.mark.hpu(devices=2, lazy=True),
    # peft reads a property that transformers deprecates.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def _adapted() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
    )
    return get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def _train(device: str) -> tuple[Any, list[float]]:
    model = _adapted().to(device)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.05)
    words = torch.arange(12, device=device).view(2, 6)
    losses = []
    for _ in range(5):
        loss = model(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


def test_lora_trains_as_on_the_cpu() -> None:
    losses = [_train(device)[1] for device in ("cpu", "hpu")]

    torch.testing.assert_close(*(torch.tensor(each) for each in losses))
    assert losses[1][-1] < losses[1][0]


def test_an_adapter_is_merged_into_the_weights() -> None:
    model, _ = _train("hpu")
    words = torch.arange(6, device="hpu").view(1, 6)
    with torch.no_grad():
        expected = model(input_ids=words).logits
        merged = model.merge_and_unload()
        result = merged(input_ids=words).logits

    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert not any("lora" in name for name, _ in merged.named_parameters())
