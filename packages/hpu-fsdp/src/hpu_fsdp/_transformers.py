"""Attention of transformers' models over sequences that ranks share, by transformers' attention interface."""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import torch
from packaging.version import Version
from torch.nn import Module

from hpu_fsdp import context_parallel

# The first whose masks are made by length.
_TRANSFORMERS: Final = Version("5.0.dev0")
_PREFIX: Final = "ulysses_"

# The only loss that takes shifted labels.
_LOSS: Final = "ForCausalLM"


def share_attention(module: Module) -> ExitStack | None:
    """Make transformers' models in a module share attention; closing the result restores them. None without a model.

    Raises:
        ImportError: transformers is too old.
        ValueError: A model cannot, the message says why.
    """
    models = list(_models(module))
    if not models:
        return None
    version = sys.modules["transformers"].__version__
    if Version(version) < _TRANSFORMERS:
        raise ImportError(f"context parallelism needs transformers 5 or newer, got {version}: upgrade transformers")
    restore = ExitStack()
    for model in models:
        _check(model)
        before = model.config._attn_implementation  # noqa: SLF001 - transformers documents it for this.
        name = _register(before)
        model.set_attn_implementation(name)
        restore.callback(model.set_attn_implementation, before)
        if model.config._attn_implementation != name:  # noqa: SLF001 - as above.
            raise ValueError(f"{type(model).__name__} has no attention interface, which context parallelism needs")
    return restore


def _models(module: Module) -> Iterator[Any]:
    """Yield transformers' models in a module, without those inside of one."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return
    if isinstance(module, transformers.PreTrainedModel):
        yield module
        return
    for child in module.children():
        yield from _models(child)


def _check(model: Any) -> None:
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise ValueError(f"context parallelism needs a decoder, got {name} with an encoder")
    loss = getattr(model, "loss_type", None)
    if loss not in {None, _LOSS}:
        raise ValueError(f"context parallelism needs a causal language model, got {name} with the loss {loss!r}")
    before = model.config._attn_implementation  # noqa: SLF001 - as above.
    if before == "eager":
        raise ValueError(
            f"{name} must not have `attn_implementation='eager'` with context parallelism: pass 'sdpa', or the name of "
            "a function of the attention interface"
        )


def _register(implementation: str) -> str:
    """Register an attention implementation over shared sequences, and return its name."""
    attentions = importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    masks = importlib.import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    name = _PREFIX + implementation
    attentions.register(name, functools.partial(_attention, attentions[implementation]))
    if implementation in masks:
        masks.register(name, functools.partial(_make_mask, masks[implementation]))
    return name


class _LocalHeads:
    """Layer of attention, as an attention function sees it, with the heads of this rank."""

    def __init__(self, layer: Module, groups: int) -> None:
        self._layer = layer
        self.num_key_value_groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def _attention(  # noqa: PLR0913, PLR0917 - transformers' arguments.
    attention: Callable[..., Any],
    layer: Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of this rank's part of the sequences, (batch, part, heads, head size)."""
    parallel = context_parallel.active()
    if parallel.size == 1:
        result: tuple[torch.Tensor, None] = attention(layer, query, key, value, attention_mask, **options)
        return result
    if options.get("position_bias") is not None:
        raise ValueError(f"{type(layer).__name__} has a bias of positions, which context parallelism does not split")
    query, key, value = context_parallel.exchange(parallel, query, key, value)
    heads = _LocalHeads(layer, query.shape[1] // key.shape[1])
    output, _ = attention(heads, query, key, value, attention_mask, **options)
    return context_parallel.gather_heads(parallel, output.transpose(1, 2)).transpose(1, 2).contiguous(), None


def _make_mask(make: Callable[..., Any], *, q_length: int, kv_length: int, **options: Any) -> Any:
    """Return the mask of whole sequences; a padding mask is whole, and the model has a part of the tokens."""
    length = q_length * context_parallel.active().size
    length_of_keys = length if context_parallel.active().size > 1 else kv_length
    return make(q_length=length, kv_length=length_of_keys, **options)
