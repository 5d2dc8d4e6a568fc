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
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


#: Note of a plan whose program calls torch's attention.
DECOMPOSED: Final = (
    '`scaled_dot_product_attention` of torch, and thus "sdpa" of transformers, is separate operators on a card, which '
    "write the scores to memory. `FusedSDPA` of the bridge is one kernel."
)


class Recorder(Protocol):
    """What a recording of operators learns from a kernel."""

    #: Notes of a plan.
    notes: set[str]

    def begin_kernel(self) -> None:
        """Begin a kernel: the operators that follow are parts of one launch."""

    def end_kernel(self) -> None:
        """End the kernel."""

    def mark_step(self) -> None:
        """End the graph that the bridge gathers."""

    def on_read(self, name: str, value: Any) -> None:
        """Take what the host waits for."""

    def replaceable(self, kernel: str) -> contextlib.AbstractContextManager[None]:
        """Return a context whose operators a kernel of the bridge could replace."""


@contextlib.contextmanager
def applied(recorder: Recorder, *, decomposes_attention: bool) -> Iterator[None]:
    """Record the operators of fused kernels as parts of one launch, and attention by the bridge's paths.

    Args:
        recorder: Recorder.
        decomposes_attention: Whether attention takes these paths; else that of the CPU, for its numbers.
    """
    from habana_frameworks.torch import core, hpu
    from habana_frameworks.torch.hpex import kernels
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm, FusedRMSNorm
    from habana_frameworks.torch.hpex.optimizers import FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with contextlib.ExitStack() as stack:
        put = functools.partial(replace, stack)
        for owner in (FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD):
            put(owner, "_step", _as_one_kernel(owner._step, recorder))  # noqa: SLF001 - the simulator's own
        put(FusedClipNorm, "clip_norm", _as_one_kernel(FusedClipNorm.clip_norm, recorder))
        put(nn.functional, "dropout", _as_one_kernel(nn.functional.dropout, recorder))
        rotations = (
            kernels.RotaryPosEmbeddingHelperV1,
            kernels.RotaryPosEmbeddingHelperV2,
            kernels.RotaryPosEmbeddingHelperV3,
        )
        for owner in (FusedRMSNorm, *rotations):
            put(owner, "apply", staticmethod(_as_two_kernels(owner.apply, recorder)))
        for name in ("mark_step", "iter_mark_step"):
            put(core, name, _with_end(getattr(core, name), recorder))
        put(hpu, "synchronize", _with_wait(hpu.synchronize, recorder))
        put(nn.utils, "clip_grad_norm_", _as_replaceable(nn.utils.clip_grad_norm_, recorder))
        attention = nn.functional.scaled_dot_product_attention
        put(nn.functional, "scaled_dot_product_attention", _noted(attention, recorder))
        fused = _as_one_operator(kernels.FusedSDPA.apply, attention, is_chosen=not decomposes_attention)
        put(kernels.FusedSDPA, "apply", staticmethod(fused))
        if decomposes_attention:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until a stack is closed."""
    # A static method of a class is restored as one.
    stack.callback(setattr, owner, name, vars(owner).get(name, getattr(owner, name)))
    setattr(owner, name, value)


def _with_end(mark_step: Callable[..., None], recorder: Recorder) -> Callable[..., None]:
    @functools.wraps(mark_step)
    def call(*args: Any, **kwargs: Any) -> None:
        recorder.mark_step()
        mark_step(*args, **kwargs)

    return call


def _with_wait(synchronize: Callable[[], None], recorder: Recorder) -> Callable[[], None]:
    @functools.wraps(synchronize)
    def call() -> None:
        recorder.on_read("synchronize", None)
        synchronize()

    return call


def _noted(attention: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(attention)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder.notes.add(DECOMPOSED)
        with recorder.replaceable("FusedSDPA"):
            return attention(*args, **kwargs)

    return call


def _as_replaceable(clip: Callable[..., Tensor], recorder: Recorder) -> Callable[..., Tensor]:
    @functools.wraps(clip)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        with recorder.replaceable("FusedClipNorm"):
            return clip(*args, **kwargs)

    return call


def _as_one_operator(fused: Callable[..., Any], plain: Callable[..., Any], *, is_chosen: bool) -> Callable[..., Any]:
    """Return the bridge's attention as one operator, unless its kernel is chosen already, and as none of torch's."""
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    @functools.wraps(fused)
    def apply(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            replace(stack, nn.functional, "scaled_dot_product_attention", plain)
            if not is_chosen:
                stack.enter_context(sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]))
            return fused(*args, **kwargs)

    return apply


def _as_one_kernel(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder.begin_kernel()
        try:
            return original(*args, **kwargs)
        finally:
            recorder.end_kernel()

    return call


def _as_two_kernels(original: Callable[..., Tensor], recorder: Recorder) -> Callable[..., Tensor]:
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
