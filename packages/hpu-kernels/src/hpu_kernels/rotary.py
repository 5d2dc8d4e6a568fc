"""Rotary embeddings of transformers' models by the bridge's kernel, where their function computes the same."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import nn

from hpu_core import casts
from hpu_kernels import scope, table

# The function that each file of transformers with such a model has.
NAME: Final = "apply_rotary_pos_emb"
KERNEL: Final = "RotaryPosEmbedding"


def _rotate(tensor: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return queries or keys, (batch, heads, length, head size), rotated by angles of shape (1, length, head size)."""
    angles = cos.to(tensor.dtype).unsqueeze(0), sin.to(tensor.dtype).unsqueeze(0)
    kernel: Any = scope.bridge_module("hpex.kernels").RotaryPosEmbeddingHelperV1
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
    def apply_rotary_pos_emb(query: Any, key: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        """Return query and key, rotated by the bridge's kernel or by the function of transformers."""
        if scope.is_on_card(query, key, cos, sin) and scope.is_active():
            reason = _why_left(query, key, cos, sin, bool(args or kwargs))
            scope.note(NAME, reason or KERNEL)
            if reason is None:
                return _rotate(query, cos, sin), _rotate(key, cos, sin)
        return plain(query, key, cos, sin, *args, **kwargs)

    return apply_rotary_pos_emb


def apply(modules: Iterable[nn.Module]) -> tuple[list[table.Row], list[scope.Undo]]:
    """Replace the functions in the files of the modules' classes."""
    files = {kind.__module__ for module in modules for kind in type(module).__mro__}
    undo, rows = [], []
    for file in sorted(files & sys.modules.keys()):
        function = vars(sys.modules[file]).get(NAME)
        if callable(function):
            if _is_same(function):
                undo.append(scope.replace(sys.modules[file], NAME, _replacement))
            else:
                rows.append(table.Row(f"{NAME} of {file.rpartition('.')[2]}", None, 1, "it computes something else"))
    return rows, undo


@torch.no_grad()
def _is_same(function: Callable[..., Any]) -> bool:
    """Return whether a function computes what the kernel does, for one small input."""
    query, key = torch.linspace(-1.0, 3.0, 2 * 2 * 3 * 8).view(2, 2, 3, 8).to("hpu").split(1)
    angles = torch.linspace(0.0, 3.0, 3 * 4).view(1, 3, 4).repeat(1, 1, 2)
    cos, sin = angles.cos().to("hpu"), angles.sin().to("hpu")
    try:
        expected = function(query, key, cos, sin)
    except Exception:  # noqa: BLE001 - a function of others, which may need anything.
        return False
    pairs = zip(expected, (_rotate(query, cos, sin), _rotate(key, cos, sin)), strict=False)
    return all(torch.allclose(each, result, atol=1e-5) for each, result in pairs)
