"""``hmp.convert``: replace functions of torch by ones that cast their inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from habana_frameworks.torch.hpex.hmp.policy import policy
from torch.nn import functional

from hpu_sim.autocast import default_list
from hpu_sim.features import features

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS: Final = ("O1", "O2")
_LATE: Final = features().hmp_float16
_DEFAULT_FP32: Final = default_list("autocast_fp32" if _LATE else "hmp_o1_fp32")
# The operators that autocast later called promoting.
_MULTI_INPUT: Final = default_list("autocast_promote")
_KNOWN: Final = _MULTI_INPUT.union(
    _DEFAULT_FP32, *(default_list(f"hmp_{name}") for name in ("o1_bf16", "o1_fp32", "o2_bf16"))
)

# Where an operator is called other than by its name.
_OTHER_NAMES: Final = {
    "add": ("__add__", "__radd__"),
    "cross_entropy_loss": ("cross_entropy",),
    "iadd": ("__iadd__",),
    "matmul": ("__matmul__", "__rmatmul__"),
    "mul": ("__mul__", "__rmul__"),
    "pow": ("__pow__", "__rpow__"),
    "sub": ("__sub__", "__rsub__"),
    "truediv": ("__truediv__", "__rtruediv__"),
}


def _convert(opt_level: str, low_path: str, fp32_path: str, low_dtype: torch.dtype, *, verbose: bool) -> None:
    assert opt_level in _LEVELS, "Optlevel should be either O1 or O2"  # noqa: S101 - the bridge's own
    if verbose:
        print(f"hmp:verbose_mode {verbose}")  # noqa: T201 - what isVerbose asks for
        print(f"hmp:opt_level {opt_level}")  # noqa: T201 - as above
    if opt_level == "O1":
        low = _read(low_path, default_list("hmp_o1_bf16"))
        fp32 = _read(fp32_path, _DEFAULT_FP32)
        assert not low & fp32, f"operators in both lists: {', '.join(sorted(low & fp32))}"  # noqa: S101 - as above
        widest = _MULTI_INPUT - low - fp32
    else:
        if (low_path, fp32_path) != ("", ""):
            print("Input op list would be overridden in opt_level O2")  # noqa: T201 - the bridge prints it
        low = default_list("hmp_o2_bf16")
        fp32 = _KNOWN - low
        widest = frozenset()
    policy.low, policy.fp32, policy.widest = low, fp32, widest
    policy.low_dtype, policy.verbose = low_dtype, verbose
    for name in sorted(low | fp32 | widest):
        _replace(name)


def _read(path: str, default: frozenset[str]) -> frozenset[str]:
    if path == "":
        return default
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - None has to be the TypeError of open()
        names = [line.strip() for line in file if line.strip()]
    for name in names:
        if name not in _KNOWN:
            print(f"{name} OP not supported. Please add it to OPs dict and try again")  # noqa: T201 - the bridge prints it
    return frozenset(names) & _KNOWN


def _replace(name: str) -> None:
    for attribute in (name, *_OTHER_NAMES.get(name, ())):
        for owner in (torch, torch.Tensor, functional):
            stock = getattr(owner, attribute, None)
            if callable(stock) and not hasattr(stock, "hmp_stock"):
                setattr(owner, attribute, _casting(name, stock))


def _casting(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def run(*arguments: Any, **options: Any) -> Any:
        cast, named = policy.cast(name, arguments, options)
        return stock(*cast, **named)

    run.hmp_stock = stock  # type: ignore[attr-defined] # marks what was replaced, so that it is not replaced twice
    return run


def _convert_early(
    opt_level: str = "O1",
    bf16_file_path: str = "",
    fp32_file_path: str = "",
    isVerbose: bool = False,  # noqa: N803 - the bridge's name
) -> None:
    """Make torch's operators cast hpu tensors between float32 and bfloat16, for good.

    Args:
        opt_level: ``"O1"``: by the lists. ``"O2"``: matrix products and convolutions in bfloat16, all else in float32.
        bf16_file_path: File of the operators for bfloat16, one a line; ``""`` for the bridge's own.
        fp32_file_path: File of the operators for float32; ``""`` for the bridge's own.
        isVerbose: Whether what is cast is printed, each kind once.

    Raises:
        AssertionError: If the level is another one, or an operator is in both lists.
        OSError: If a file cannot be read.
        TypeError: If a path is None at level O1.
    """
    _convert(opt_level, bf16_file_path, fp32_file_path, torch.bfloat16, verbose=isVerbose)


def _convert_late(  # noqa: PLR0913, PLR0917 - the bridge's signature
    opt_level: str = "O1",
    bf16_file_path: str = "",
    fp32_file_path: str = "",
    fp16_file_path: str = "",
    isVerbose: bool = False,  # noqa: N803 - the bridge's name
    low_precision_type: torch.dtype = torch.bfloat16,
) -> None:
    """Make torch's operators cast hpu tensors between float32 and a lower precision, for good.

    Args:
        opt_level: ``"O1"``: by the lists. ``"O2"``: matrix products and convolutions in the lower precision, all else
            in float32.
        bf16_file_path: File of the operators for bfloat16, one a line; ``""`` for the bridge's own.
        fp32_file_path: File of the operators for float32; ``""`` for the bridge's own.
        fp16_file_path: File of the operators for float16, used instead of the first where that is the lower precision.
        isVerbose: Whether what is cast is printed, each kind once.
        low_precision_type: ``torch.bfloat16`` or ``torch.float16``.

    Raises:
        AssertionError: If the level is another one, or an operator is in both lists.
        OSError: If a file cannot be read.
        TypeError: If a path is None at level O1.
    """
    low_path = fp16_file_path if low_precision_type == torch.float16 else bf16_file_path
    _convert(opt_level, low_path, fp32_file_path, low_precision_type, verbose=isVerbose)


convert: Callable[..., None] = _convert_late if _LATE else _convert_early
