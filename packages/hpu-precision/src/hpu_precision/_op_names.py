"""Names in op lists and the torch operators that they denote.

HMP's lists use the names of Python functions ("cross_entropy", "truediv" for `/`). The bridge's autocast lists use the
names of torch operators ("cross_entropy_loss"). Both are accepted on every release.
"""

import functools
from collections.abc import Iterable
from typing import Final

import torch

# Names of Python functions that differ from those of their operators.
_ALIASES: Final = {
    "cross_entropy": ("cross_entropy_loss",),
    "iadd": ("add_",),
    "idiv": ("div_",),
    "imul": ("mul_",),
    "interpolate": tuple(
        f"upsample_{mode}"
        for mode in ("bicubic2d", "bilinear2d", "linear1d", "nearest1d", "nearest2d", "nearest3d", "trilinear3d")
    ),
    "isub": ("sub_",),
    "itruediv": ("div_",),
    # torch.nn.functional.nll_loss calls nll_loss_nd, which calls nll_loss or its variant for images.
    "nll_loss": ("nll_loss", "nll_loss_nd"),
    # The `/` operator calls div.
    "truediv": ("div", "true_divide"),
}


@functools.cache
def operators(name: str) -> frozenset[str]:
    """Return the torch operators of a name, without namespace; empty for an unknown name.

    >>> sorted(operators("truediv")), operators("liner")
    (['div', 'true_divide'], frozenset())
    """
    return frozenset(operator for operator in _ALIASES.get(name, (name,)) if _exists(operator))


def operators_of(names: Iterable[str]) -> frozenset[str]:
    """Return the torch operators of several names."""
    return frozenset().union(*(operators(name) for name in names))


def _exists(operator: str) -> bool:
    # The namespace has attributes that are not operators.
    return operator.isidentifier() and isinstance(getattr(torch.ops.aten, operator, None), torch._ops.OpOverloadPacket)  # noqa: SLF001 - see above
