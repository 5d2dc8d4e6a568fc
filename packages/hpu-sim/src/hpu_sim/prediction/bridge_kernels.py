"""The bridge's kernels in a recorded step: what else is one launch, and which path attention takes.

Dropout is a row of operators here, and one launch of the host on a card, as the bridge's own fused kernels are. The
bridge has no kernel for torch's ``scaled_dot_product_attention``, which therefore takes the path of separate operators
(seen in 1.19, and assumed of every release). Its ``FusedSDPA`` is one kernel.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.events import as_one_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

# Index of the probability among the arguments of FusedSDPA.
_DROPOUT: Final = 4

#: Note of a plan whose program calls torch's attention.
DECOMPOSED: Final = (
    '`scaled_dot_product_attention` of torch, and thus "sdpa" of transformers, is separate operators on a card, which '
    "write the scores to memory. `FusedSDPA` of the bridge is one kernel."
)


@contextlib.contextmanager
def applied(notes: set[str]) -> Iterator[None]:
    """Record dropout as one launch, and attention by the bridge's paths, in place of the CPU's for its numbers.

    Args:
        notes: Notes of a plan.
    """
    from habana_frameworks.torch.hpex import kernels
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = nn.functional.scaled_dot_product_attention

    @functools.wraps(attention)
    def attend(*args: Any, **kwargs: Any) -> Any:
        notes.add(DECOMPOSED)
        return attention(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        put = functools.partial(replace, stack)
        put(nn.functional, "dropout", as_one_kernel(nn.functional.dropout))
        put(nn.functional, "scaled_dot_product_attention", attend)
        put(kernels.FusedSDPA, "apply", staticmethod(_as_one_operator(kernels.FusedSDPA.apply)))
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


def _as_one_operator(fused: Callable[..., Any]) -> Callable[..., Any]:
    """Return the bridge's attention as one operator."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    @functools.wraps(fused)
    def apply(*args: Any, **kwargs: Any) -> Any:
        # The bridge's kernel has dropout (`sdpa_recomp_fwd_dropout`), the CPU's none; a plan needs no numbers.
        args = tuple(0.0 if index == _DROPOUT else each for index, each in enumerate(args))
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return fused(*args, **kwargs)

    return apply
