"""Fifty steps of models of transformers and torch with each kernel, with all and with none, on a simulated card."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from hpu_kernels import HPUKernels

pytestmark = pytest.mark.timeout(600)
STEPS = 50
KERNELS = ("attention", "optimizer", "norm", "rotary", "clip")
TOKENS = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}


class Encoder(nn.Module):
    """torch's encoder with padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def loss(self, generator: torch.Generator) -> torch.Tensor:
        inputs = torch.randn(4, 12, 32, generator=generator).to("hpu")
        is_padding = (torch.arange(12) >= torch.tensor([[12], [9], [5], [12]])).to("hpu")
        outputs: torch.Tensor = self.layers(inputs, src_key_padding_mask=is_padding)
        return outputs.float().square().mean()


def _of_text(model: Any, generator: torch.Generator) -> torch.Tensor:
    ids = torch.randint(0, 64, (4, 16), generator=generator).to("hpu")
    mask = (torch.arange(16) < torch.tensor([[16], [12], [9], [16]])).long().to("hpu")
    loss: torch.Tensor = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
    return loss


def _of_images(model: Any, generator: torch.Generator) -> torch.Tensor:
    logits = model(torch.randn(4, 3, 16, 16, generator=generator).to("hpu")).logits
    return functional.cross_entropy(logits, torch.randint(0, 4, (4,), generator=generator).to("hpu"))


_SIZES: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_NO_DROPOUT: Any = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any, torch.Generator], torch.Tensor]]] = {
    "Llama": (lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, **TOKENS, num_key_value_heads=2)), _of_text),
    "GPT-2": (lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, **TOKENS, **_NO_DROPOUT)), _of_text),
    "ViT": (
        lambda: ViTForImageClassification(ViTConfig(**_SIZES, image_size=16, patch_size=4, num_labels=4)),
        _of_images,
    ),
    "encoder": (Encoder, Encoder.loss),
}


def train(name: str, switches: dict[str, bool], *, mixed: bool = False, after: Any = None, seed: int = 0) -> Any:
    """Return losses of fifty steps, and the states of model and optimizer; go on after those of another training."""
    torch.manual_seed(0)
    make, loss_of = MODELS[name]
    model = make().to("hpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-12)
    if after is not None:
        model.load_state_dict(after[1])
        optimizer.load_state_dict(copy.deepcopy(after[2]))
    generator, losses = torch.Generator().manual_seed(seed), []
    with HPUKernels(**switches).apply(model, optimizer):
        for _ in range(STEPS):
            with torch.autocast("hpu", dtype=torch.bfloat16, enabled=mixed):
                loss = loss_of(model, generator)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().float())
    return torch.stack(losses).cpu(), model.state_dict(), optimizer.state_dict()


def distance(first: Any, second: Any) -> float:
    """Return the largest difference of a step's loss."""
    return float((first[0] - second[0]).abs().max())


NONE = dict.fromkeys(KERNELS, False)
CHOICES = {"all": dict.fromkeys(KERNELS, True), **{name: {**NONE, name: True} for name in KERNELS}}


@pytest.mark.parametrize("name", MODELS)
def test_each_kernel_trains_as_torch(name: str) -> None:
    plain = train(name, NONE)
    distances = {choice: distance(plain, train(name, switches)) for choice, switches in CHOICES.items()}

    assert max(distances.values()) <= 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_as_near_to_float32(name: str) -> None:
    full, plain = train(name, NONE), train(name, NONE, mixed=True)
    fused = train(name, CHOICES["all"], mixed=True)

    assert distance(full, fused) <= 1.25 * distance(full, plain)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_goes_on_with_and_without(name: str) -> None:
    plain, fused = train(name, NONE), train(name, CHOICES["all"])
    expected = train(name, NONE, after=plain, seed=1)

    assert distance(expected, train(name, NONE, after=fused, seed=1)) <= 1e-5
    assert distance(expected, train(name, CHOICES["all"], after=plain, seed=1)) <= 1e-5
