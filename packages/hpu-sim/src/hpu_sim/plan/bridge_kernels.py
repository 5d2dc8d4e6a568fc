"""The bridge's kernels in a plan: which operators are one launch, and which path attention takes.

A fused optimizer, norm or rotation is a row of operators here, and one launch of the host on a card. So is dropout, of
which the bridge has an operator of its own. The bridge has no kernel for torch's ``scaled_dot_product_attention``,
which therefore takes the path of separate operators (seen in 1.19, and assumed of every release). Its ``FusedSDPA`` is
one kernel.
"""
# hpu-doctor verify: torch-attention-is-decomposed

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from hpu_sim.plan import patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from hpu_sim.prediction.operation_recorder import OperationRecorder


@contextlib.contextmanager
def applied(recorder: OperationRecorder) -> Iterator[None]:
    """Record the operators of fused kernels as parts of one launch, and attention by the bridge's paths."""
    from habana_frameworks.torch.hpex import kernels
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm, FusedRMSNorm
    from habana_frameworks.torch.hpex.optimizers import FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with contextlib.ExitStack() as stack:
        replace = functools.partial(patches.replace, stack)
        for owner in (FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD):
            replace(owner, "_step", _as_one_kernel(owner._step, recorder))  # noqa: SLF001 - the simulator's own
        replace(FusedClipNorm, "clip_norm", _as_one_kernel(FusedClipNorm.clip_norm, recorder))
        replace(nn.functional, "dropout", _as_one_kernel(nn.functional.dropout, recorder))
        rotations = (
            kernels.RotaryPosEmbeddingHelperV1,
            kernels.RotaryPosEmbeddingHelperV2,
            kernels.RotaryPosEmbeddingHelperV3,
        )
        for owner in (FusedRMSNorm, *rotations):
            replace(owner, "apply", staticmethod(_as_two_kernels(owner.apply, recorder)))
        replace(kernels.FusedSDPA, "apply", staticmethod(_as_one_operator(kernels.FusedSDPA.apply)))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def _as_one_operator(attention: Callable[..., Any]) -> Callable[..., Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    @functools.wraps(attention)
    def apply(*args: Any, **kwargs: Any) -> Any:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return attention(*args, **kwargs)

    return apply


def _as_one_kernel(original: Callable[..., Any], recorder: OperationRecorder) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder.begin_kernel()
        try:
            return original(*args, **kwargs)
        finally:
            recorder.end_kernel()

    return call


def _as_two_kernels(original: Callable[..., Tensor], recorder: OperationRecorder) -> Callable[..., Tensor]:
    """Return a function whose operators are a kernel in the forward pass, and another in the backward pass.

    The autograd engine runs the nodes of one call right after each other: from the gradient of the result to that of
    the first argument, of which a view makes a node of its own.
    """
    forward = _as_one_kernel(original, recorder)

    @functools.wraps(original)
    def apply(data: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        first = data.view_as(data)
        result: Tensor = forward(first, *args, **kwargs)
        if first.requires_grad:
            result.register_hook(lambda _: recorder.begin_kernel())
            first.register_hook(lambda _: recorder.end_kernel())
        return result

    return apply
