"""Inference mode. After 1.19 the names change, and the older ones print a deprecation notice.

On a card these calls let the graph compiler treat weights as constants and fold reshapes. Here they set the flags that
programs can read, and fold batch norms into convolutions.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval

from habana_frameworks.torch.hpu import _flags
from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable

_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


def _set_env(model: torch.nn.Module | None = None) -> torch.nn.Module | None:
    """Enable inference mode. Call it before the model moves to the device.

    Args:
        model: Model in which to fold each batch norm into the convolution right before it.

    Returns:
        The model, or None if none was given.
    """
    _flags.enable_inference_mode()
    _flags.enable_matmul3d_2d_reshape()
    return None if model is None else _fold_batch_norms(model)


def _reset_env() -> None:
    """Disable inference mode."""
    _flags.disable_inference_mode()
    _flags.disable_matmul3d_2d_reshape()


def _renamed(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function under an old name, which prints the notice of releases that have the new name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if features().after_1_19:
            print(f"[TO BE DEPRECATED] {old}, use {new}")  # noqa: T201 - the bridge prints it
        return function(*args, **kwargs)

    return call


hpu_set_env = _renamed("hpu_set_env", "hpu_inference_set_env", _set_env)
hpu_set_inference_env = _renamed("hpu_set_inference_env", "hpu_inference_set_env", _set_env)
hpu_reset_env = _renamed("hpu_reset_env", "hpu_inference_reset_env", _reset_env)
hpu_teardown_inference_env = _renamed("hpu_teardown_inference_env", "hpu_inference_reset_env", _reset_env)


def _fold_batch_norms(model: torch.nn.Module) -> torch.nn.Module:
    # Only in a Sequential is the order of layers known without running the model.
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
    """Mark the weights of a model on the device as constants, which has no effect here."""
    del model, mark_only_scales_as_const, optimizer, args


def _initialize_after_1_19(  # noqa: PLR0913, PLR0917 - the bridge's signature
    model: torch.nn.Module | None = None,
    mark_only_scales_as_const: bool = False,
    mark_scales: bool = True,
    mark_non_scales: bool = True,
    optimizer: Any = None,
    args: Any = None,
) -> None:
    """Mark the weights of a model on the device as constants, which has no effect here."""
    del model, mark_only_scales_as_const, mark_scales, mark_non_scales, optimizer, args


hpu_initialize: Callable[..., None] = _initialize_after_1_19 if features().after_1_19 else _initialize_until_1_19
hpu_inference_initialize = hpu_initialize

if features().after_1_19:
    hpu_inference_set_env = _set_env
    hpu_inference_reset_env = _reset_env
