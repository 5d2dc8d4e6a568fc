"""Rotary embeddings of transformers' models by the bridge's kernel, where their function computes the same."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import nn

from hpu_core import casts
from hpu_kernels import replacement

# The function that each file of transformers with such a model has.
NAME: Final = "apply_rotary_pos_emb"


def _rotate(tensor: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return queries or keys, (batch, heads, length, head size), rotated by angles of shape (1, length, head size)."""
    angles = cos.to(tensor.dtype).unsqueeze(0), sin.to(tensor.dtype).unsqueeze(0)
    kernel: Any = replacement.bridge_module("hpex.kernels").RotaryPosEmbeddingHelperV1
    rotated: torch.Tensor = kernel.apply(tensor, *angles, 0)
    return rotated


def _why_left(query: Any, key: Any, cos: Any, sin: Any, given: bool) -> str | None:
    if given or any(type(each) is not torch.Tensor for each in (query, key, cos, sin)):
        return "positions or dimensions are given"
    if cos.dtype != query.dtype and not casts.are_enabled():
        return "the result has another dtype than the query"
    if query.dim() != 4 or cos.dim() != 3 or cos.shape[0] != 1 or cos.shape[-1] != query.shape[-1]:  # noqa: PLR2004
        return "positions differ by sample, or only a part of the features is rotated"
    return None


def _replacement(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def apply_rotary_pos_emb(query: Any, key: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        if replacement.is_on_card(query, key, cos, sin):
            reason = _why_left(query, key, cos, sin, bool(args or kwargs))
            if replacement.take(NAME, "RotaryPosEmbedding", reason):
                return _rotate(query, cos, sin), _rotate(key, cos, sin)
        return plain(query, key, cos, sin, *args, **kwargs)

    return apply_rotary_pos_emb


def apply(modules: Iterable[nn.Module], optimizers: Any) -> Iterator[replacement.Undo]:
    """Replace the functions in the files of the modules' classes."""
    del optimizers
    # A small input, for which a function that computes the same has the kernel's result.
    query, key = tensors = torch.linspace(-1.0, 3.0, 2 * 2 * 3 * 8).view(2, 2, 3, 8).split(1)
    angles = torch.linspace(0.0, 3.0, 3 * 4).view(1, 3, 4).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    halves = [each.chunk(2, -1) for each in tensors]
    swapped = [torch.cat((-second, first), -1) for first, second in halves]
    expected = tuple(each * cos + other * sin for each, other in zip(tensors, swapped, strict=True))
    for file in sorted({kind.__module__ for module in modules for kind in type(module).__mro__} & sys.modules.keys()):
        function = vars(sys.modules[file]).get(NAME)
        if not callable(function):
            continue
        plain = functools.partial(function, query, key, cos, sin)
        if replacement.is_same(plain, expected):
            yield replacement.replace(sys.modules[file], NAME, _replacement)
        else:
            replacement.note(f"{NAME} of {file.rpartition('.')[2]}", "", "it computes something else")
