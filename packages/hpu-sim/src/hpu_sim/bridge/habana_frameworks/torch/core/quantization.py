"""Inference mode. After 1.19 the names change, and the older ones print a deprecation notice.

On a card these calls let the graph compiler treat weights as constants and fold layers. Here they set a flag that
programs can read.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from habana_frameworks.torch.hpu import _flags
from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def _set_env(model: torch.nn.Module | None = None) -> torch.nn.Module | None:
    """Enable inference mode, before the model moves to the device, and return the model."""
    _flags.enable_inference_mode()
    return model


def _reset_env() -> None:
    """Disable inference mode."""
    _flags.disable_inference_mode()


def _renamed(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function under an old name, which prints the notice of releases that have the new name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if features().after_1_19:
            print(f"[TO BE DEPRECATED] {old}, use {new}")  # noqa: T201 - the bridge prints it
        return function(*args, **kwargs)

    return call


hpu_set_env = _renamed("hpu_set_env", "hpu_inference_set_env", _set_env)
hpu_reset_env = _renamed("hpu_reset_env", "hpu_inference_reset_env", _reset_env)


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
