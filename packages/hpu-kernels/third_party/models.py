"""Models of transformers and torch, and what they are trained with."""

from collections.abc import Callable
from typing import Any

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

KERNELS = ("attention", "optimizer", "norm", "rotary", "clip")
NONE = dict.fromkeys(KERNELS, False)
CHOICES = {"all": dict.fromkeys(KERNELS, True), **{name: {**NONE, name: True} for name in KERNELS}}
"""Arguments of `HPUKernels` with all kernels, and with each alone."""

_TOKENS = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
_SIZES: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_NO_DROPOUT: Any = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def _make_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _of_padded(model: Any, generator: torch.Generator) -> torch.Tensor:
    inputs = torch.randn(4, 12, 32, generator=generator).to("hpu")
    is_padding = (torch.arange(12) >= torch.tensor([[12], [9], [5], [12]])).to("hpu")
    outputs: torch.Tensor = model(inputs, src_key_padding_mask=is_padding)
    return outputs.float().square().mean()


def _of_text(model: Any, generator: torch.Generator) -> torch.Tensor:
    ids = torch.randint(0, 64, (4, 16), generator=generator).to("hpu")
    mask = (torch.arange(16) < torch.tensor([[16], [12], [9], [16]])).long().to("hpu")
    loss: torch.Tensor = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
    return loss


def _of_images(model: Any, generator: torch.Generator) -> torch.Tensor:
    logits = model(torch.randn(4, 3, 16, 16, generator=generator).to("hpu")).logits
    return functional.cross_entropy(logits, torch.randint(0, 4, (4,), generator=generator).to("hpu"))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any, torch.Generator], torch.Tensor]]] = {
    "Llama": (lambda: LlamaForCausalLM(LlamaConfig(**_SIZES, **_TOKENS, num_key_value_heads=2)), _of_text),
    "GPT-2": (lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, **_TOKENS, **_NO_DROPOUT)), _of_text),
    "ViT": (
        lambda: ViTForImageClassification(ViTConfig(**_SIZES, image_size=16, patch_size=4, num_labels=4)),
        _of_images,
    ),
    "encoder": (_make_encoder, _of_padded),
}
"""By name, what makes a model, and what computes the loss of a random batch."""


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW; the kernel adds `eps` at another place, so it is small."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-12)
