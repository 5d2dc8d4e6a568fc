"""Preparing a model for inference. The names changed after 1.19, when the older ones began to print that they will go.

On a card these calls let the graph compiler treat weights as constants and fold reshapes. Here they set the switches
that programs can read, and fuse what is fused on a card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval

from habana_frameworks.torch.hpu import _toggles, _toggles_after_1_19
from hpu_sim.features import features

if TYPE_CHECKING:
    from collections.abc import Callable

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


def hpu_set_env(model: torch.nn.Module | None = None) -> torch.nn.Module | None:
    """Switch inference mode on. Call it before the model moves to the card.

    Args:
        model: A model whose batch norms are to be folded into the convolutions right before them.

    Returns:
        The model, or None where none was given.
    """
    _announce_end("hpu_set_env", "hpu_inference_set_env")
    return _set_env(model)


def hpu_set_inference_env(model: torch.nn.Module | None = None) -> torch.nn.Module | None:
    """Switch inference mode on; another name of :func:`hpu_set_env`."""
    _announce_end("hpu_set_inference_env", "hpu_inference_set_env")
    return _set_env(model)


def hpu_reset_env() -> None:
    """Switch inference mode off."""
    _announce_end("hpu_reset_env", "hpu_inference_reset_env")
    _reset_env()


def hpu_teardown_inference_env() -> None:
    """Switch inference mode off; another name of :func:`hpu_reset_env`."""
    _announce_end("hpu_teardown_inference_env", "hpu_inference_reset_env")
    _reset_env()


def _announce_end(old: str, new: str) -> None:
    if features().after_1_19:
        print(f"[TO BE DEPRECATED] {old}, use {new}")  # noqa: T201 - the bridge prints it, too


def _set_env(model: torch.nn.Module | None = None) -> torch.nn.Module | None:
    _toggles.enable_inference_mode()
    _toggles.enable_matmul3d_2d_reshape()
    return None if model is None else _fuse(model)


def _reset_env() -> None:
    _toggles.disable_inference_mode()
    _toggles.disable_matmul3d_2d_reshape()


def _fuse(model: torch.nn.Module) -> torch.nn.Module:
    # The neighbours in a Sequential are those whose order is known without running the model.
    for module in model.modules():
        if isinstance(module, torch.nn.Sequential) and not module.training:
            for index in range(len(module) - 1):
                first, second = module[index], module[index + 1]
                if isinstance(first, _CONVOLUTIONS) and isinstance(second, _NORMS):
                    module[index] = fuse_conv_bn_eval(first, second)
                    module[index + 1] = torch.nn.Identity()
    return model


def _initialize_until_1_19(
    model: torch.nn.Module | None = None,
    mark_only_scales_as_const: bool = False,
    optimizer: Any = None,
    args: Any = None,
) -> None:
    """Declare the weights of a model that lies on the card to be constants, of which the simulator makes no use."""
    del model, mark_only_scales_as_const, optimizer, args


def _initialize_after_1_19(  # noqa: PLR0913, PLR0917 - the bridge's signature
    model: torch.nn.Module | None = None,
    mark_only_scales_as_const: bool = False,
    mark_scales: bool = True,
    mark_non_scales: bool = True,
    optimizer: Any = None,
    args: Any = None,
) -> None:
    """Declare the weights of a model that lies on the card to be constants, of which the simulator makes no use."""
    del model, optimizer, args
    _toggles_after_1_19.set_mark_scale_const(mark_scales)
    _toggles_after_1_19.set_mark_non_scale_const(mark_non_scales and not mark_only_scales_as_const)


hpu_initialize: Callable[..., None] = _initialize_after_1_19 if features().after_1_19 else _initialize_until_1_19
hpu_inference_initialize = hpu_initialize

if features().after_1_19:
    hpu_inference_set_env = _set_env
    hpu_inference_reset_env = _reset_env
