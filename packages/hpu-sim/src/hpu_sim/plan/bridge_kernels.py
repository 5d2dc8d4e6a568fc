"""The bridge's kernels in a plan: which operators are one launch, and which path attention takes.

A fused optimizer is a loop of operators here, and one launch of the host on a card. The bridge has no kernel for
torch's ``scaled_dot_product_attention``, which therefore takes the path of separate operators (seen in 1.19, and
assumed of every release). Its ``FusedSDPA`` is one kernel.
"""  # hpu-doctor verify: torch-attention-is-decomposed

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.prediction.operation_recorder import OperationRecorder


@contextlib.contextmanager
def applied(recorder: OperationRecorder) -> Iterator[None]:
    """Record the operators of fused kernels as parts of one launch, and attention by the bridge's paths."""
    from habana_frameworks.torch.hpex.kernels import FusedSDPA
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW, FusedLamb, FusedLars, FusedSGD
    from torch.nn.attention import SDPBackend, sdpa_kernel

    methods = [(each, "_step") for each in (FusedAdamW, FusedLamb, FusedLars, FusedSGD)]
    methods.append((FusedClipNorm, "clip_norm"))
    with contextlib.ExitStack() as stack:
        for owner, name in methods:
            original = getattr(owner, name, None)
            if original is not None:
                stack.callback(setattr, owner, name, original)
                setattr(owner, name, _as_one_kernel(original, recorder))
        apply = FusedSDPA.apply
        stack.callback(setattr, FusedSDPA, "apply", staticmethod(apply))
        FusedSDPA.apply = staticmethod(_as_one_operator(apply))
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
    def method(*args: Any, **kwargs: Any) -> Any:
        recorder.is_in_kernel = True
        try:
            return original(*args, **kwargs)
        finally:
            recorder.is_in_kernel = False

    return method
