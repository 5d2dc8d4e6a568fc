"""Replacements for what torch 2.3 and older, the torch of SynapseAI 1.17 and older, do not have."""

from collections.abc import Callable
from typing import Any

import torch

from hpu_core.scaler import unscale_gradients

# torch 2.2 has none.
_GradScaler: Any = getattr(torch.amp, "GradScaler", object)


class HPUGradScaler(_GradScaler):  # type: ignore[misc] # see above
    """Gradient scaler that also accepts an optimizer without gradients, whose step does nothing."""

    def _unscale_grads_(self, *args: Any) -> dict[torch.device, torch.Tensor]:
        return unscale_gradients(super()._unscale_grads_, *args)


def autocast_dtype() -> torch.dtype:
    """Return the lower precision of autocast on HPU."""
    # torch before 2.4 reads it from the device's module.
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("hpu")
    dtype: torch.dtype = torch.hpu.get_autocast_hpu_dtype()  # type: ignore[attr-defined] # The bridge registers it.
    return dtype


def make_scaler() -> HPUGradScaler:
    """Return a gradient scaler for HPU; raise a NotImplementedError if torch has none, as before 2.3."""
    if not hasattr(torch.amp, "GradScaler"):
        raise NotImplementedError(
            "precision='16-mixed' needs a gradient scaler, which torch has for hpu from 2.3 on, found torch "
            f"{torch.__version__}: use precision='bf16-mixed', which needs none"
        )
    return HPUGradScaler("hpu")


def destroy(library: torch.library.Library) -> None:
    """Remove the kernels of a library; torch before 2.2 does when the object is garbage-collected."""
    if hasattr(library, "_destroy"):
        library._destroy()  # noqa: SLF001 - garbage collection would call it at an unknown time.


def fallthrough_kernel(overload: torch._ops.OpOverload, exclude: Callable[[bool], None]) -> Callable[..., Any]:
    """Return a kernel that casts nothing; `exclude` excludes the dispatch key of autocast, or no longer does."""
    kernel: Callable[..., Any] | None = getattr(torch.library, "fallthrough_kernel", None)
    if kernel is not None:
        return kernel

    # torch 2.0 has none. Unlike it, this kernel also disables casts in the operators that the overload calls.
    def call_without_autocast(*args: Any, **kwargs: Any) -> Any:
        exclude(True)
        try:
            return overload(*args, **kwargs)
        finally:
            exclude(False)

    return call_without_autocast
