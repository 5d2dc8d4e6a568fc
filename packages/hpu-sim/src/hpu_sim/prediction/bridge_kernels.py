"""The bridge's kernels in a recorded step: what else is one launch, and which path attention takes.

Dropout is a row of operators here, and one launch of the host on a card, as the bridge's own fused kernels are. The
bridge has no kernel for torch's ``scaled_dot_product_attention``, which therefore takes the path of separate operators
(seen in 1.19, and assumed of every release). Its ``FusedSDPA`` is one kernel.
"""
# hpu-doctor verify: torch-attention-is-decomposed

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.events import as_one_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

    Context = contextlib.AbstractContextManager[None]

# Index of the probability among the arguments of FusedSDPA.
_DROPOUT: Final = 4

#: Note of a plan whose program calls torch's attention.
DECOMPOSED: Final = (
    '`scaled_dot_product_attention` of torch, and thus "sdpa" of transformers, is separate operators on a card, which '
    "write the scores to memory. `FusedSDPA` of the bridge is one kernel."
)


@contextlib.contextmanager
def applied(
    notes: set[str],
    replaceable: Callable[[str], Context],
    *,
    decomposes_attention: bool,
) -> Iterator[None]:
    """Record dropout as one launch, and attention by the bridge's paths.

    Args:
        notes: Notes of a plan.
        replaceable: Function that returns a context whose operators a kernel of the bridge could replace.
        decomposes_attention: Whether attention takes these paths; else that of the CPU, for its numbers.
    """
    if not decomposes_attention:
        # A run is observed without a change: see :func:`codes`.
        yield
        return
    from habana_frameworks.torch.hpex import kernels
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attending() -> Context:
        notes.add(DECOMPOSED)
        return replaceable("FusedSDPA")

    with contextlib.ExitStack() as stack:
        put = functools.partial(replace, stack)
        put(nn.functional, "dropout", as_one_kernel(nn.functional.dropout))
        put(nn.utils, "clip_grad_norm_", _within(nn.utils.clip_grad_norm_, lambda: replaceable("FusedClipNorm")))
        attention = nn.functional.scaled_dot_product_attention
        put(nn.functional, "scaled_dot_product_attention", _within(attention, attending))
        fused = _as_one_operator(kernels.FusedSDPA.apply, is_chosen=not decomposes_attention)
        put(kernels.FusedSDPA, "apply", staticmethod(fused))
        if decomposes_attention:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


@functools.cache
def codes() -> Mapping[CodeType, str]:
    """Return the code of functions that a run is observed in, by which their frames are known."""
    from habana_frameworks.torch.hpex import kernels
    from torch import nn

    clip: Any = nn.utils.clip_grad_norm_
    functions = {nn.functional.dropout: "dropout", inspect.unwrap(clip): "clipping"}
    found = {function.__code__: name for function, name in functions.items()}
    for method in ("apply", "forward"):
        function = getattr(kernels.FusedSDPA, method, None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
        found |= {} if code is None else {code: "fused attention"}
    return found


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until a stack is closed."""
    # A static method of a class is restored as one.
    stack.callback(setattr, owner, name, vars(owner).get(name, getattr(owner, name)))
    setattr(owner, name, value)


def _within(function: Callable[..., Any], context: Callable[[], Context]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return call


def _as_one_operator(fused: Callable[..., Any], *, is_chosen: bool) -> Callable[..., Any]:
    """Return the bridge's attention as one operator, unless its kernel is chosen already."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    @functools.wraps(fused)
    def apply(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            if not is_chosen:
                stack.enter_context(sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]))
                # The bridge's kernel has dropout (`sdpa_recomp_fwd_dropout`), the CPU's none; a plan needs no numbers.
                args = tuple(0.0 if index == _DROPOUT else each for index, each in enumerate(args))
            return fused(*args, **kwargs)

    return apply
