"""The names that op lists use, and the operators of torch that they stand for.

HMP's lists name functions as Python knows them ("cross_entropy", "truediv" for `/`), the lists of autocast name torch's
own operators ("cross_entropy_loss"). Both kinds are understood on every release.
"""

import difflib
import functools
from collections.abc import Iterable
from typing import Final

import torch
from torch.nn import functional

# Python's names of operators that torch calls otherwise.
_ALIASES: Final = {
    "cross_entropy": ("cross_entropy_loss",),
    "iadd": ("add_",),
    "idiv": ("div_",),
    "imul": ("mul_",),
    "interpolate": (
        "upsample_bicubic2d",
        "upsample_bilinear2d",
        "upsample_linear1d",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_trilinear3d",
    ),
    "isub": ("sub_",),
    "itruediv": ("div_",),
    # torch.nn.functional.nll_loss calls the second one, which hands on to the first or to its sister for images.
    "nll_loss": ("nll_loss", "nll_loss_nd"),
    # The division sign calls div.
    "truediv": ("div", "true_divide"),
}


@functools.cache
def operators(name: str) -> frozenset[str]:
    """Return the operators of torch that a name stands for, without their namespace; empty for an unknown name.

    >>> sorted(operators("truediv")), operators("liner")
    (['div', 'true_divide'], frozenset())
    """
    return frozenset(target for target in _ALIASES.get(name, (name,)) if _exists(target))


def operators_of(names: Iterable[str]) -> frozenset[str]:
    """Return the operators that any of some names stands for."""
    return frozenset().union(*(operators(name) for name in names))


def nearest(name: str) -> str | None:
    """Return the known name that is most like an unknown one, None where none is.

    >>> nearest("liner")
    'linear'
    """
    matches = difflib.get_close_matches(name.lower(), _all(), n=1)
    return matches[0] if matches else None


def _exists(operator: str) -> bool:
    # The type tells operators from the namespace's own attributes.
    return isinstance(getattr(torch.ops.aten, operator, None), torch._ops.OpOverloadPacket)  # noqa: SLF001 - see above


@functools.cache
def _all() -> tuple[str, ...]:
    """Return the names that a person would write: torch has no public list of its operators."""
    written = {*dir(torch), *dir(torch.Tensor), *dir(functional)}
    return tuple(sorted({name for name in written if not name.startswith("_") and _exists(name)} | _ALIASES.keys()))
