"""``hmp.convert``: patches of torch functions that cast their inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from habana_frameworks.torch.hpex.hmp.policy import policy
from torch.nn import functional

from hpu_sim.device.autocast import default_list
from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS: Final = ("O1", "O2")
_HAS_FLOAT16: Final = features().hmp_float16
_DEFAULT_FP32: Final = default_list("autocast_fp32" if _HAS_FLOAT16 else "hmp_o1_fp32")
# The promote list of autocast.
_PROMOTE: Final = default_list("autocast_promote")
_KNOWN: Final = _PROMOTE.union(
    _DEFAULT_FP32, *(default_list(f"hmp_{name}") for name in ("o1_bf16", "o1_fp32", "o2_bf16"))
)

# Other attributes through which an operator is called.
_ALIASES: Final = {
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
    assert opt_level in _LEVELS, "Optlevel should be either O1 or O2"  # noqa: S101 - as in the bridge
    if verbose:
        print(f"hmp:verbose_mode {verbose}")  # noqa: T201 - requested by isVerbose
        print(f"hmp:opt_level {opt_level}")  # noqa: T201 - as above
    if opt_level == "O1":
        low = _read(low_path, default_list("hmp_o1_bf16"))
        fp32 = _read(fp32_path, _DEFAULT_FP32)
        assert not low & fp32, f"operators in both lists: {', '.join(sorted(low & fp32))}"  # noqa: S101 - as above
        promote = _PROMOTE - low - fp32
    else:
        if (low_path, fp32_path) != ("", ""):
            print("Input op list would be overridden in opt_level O2")  # noqa: T201 - as in the bridge
        low = default_list("hmp_o2_bf16")
        fp32 = _KNOWN - low
        promote = frozenset()
    policy.low, policy.fp32, policy.promote = low, fp32, promote
    policy.low_dtype, policy.verbose = low_dtype, verbose
    for name in sorted(low | fp32 | promote):
        _patch(name)


def _read(path: str, default: frozenset[str]) -> frozenset[str]:
    if path == "":
        return default
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - None has to be the TypeError of open()
        names = [line.strip() for line in file if line.strip()]
    for name in names:
        if name not in _KNOWN:
            print(f"{name} OP not supported. Please add it to OPs dict and try again")  # noqa: T201 - as in the bridge
    return frozenset(names) & _KNOWN


def _patch(name: str) -> None:
    for attribute in (name, *_ALIASES.get(name, ())):
        for owner in (torch, torch.Tensor, functional):
            original = getattr(owner, attribute, None)
            if callable(original) and not hasattr(original, "hmp_original"):
                setattr(owner, attribute, _with_casts(name, original))


def _with_casts(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = policy.cast(name, args, kwargs)
        return original(*args, **kwargs)

    wrapper.hmp_original = original  # type: ignore[attr-defined] # marks a patched function
    return wrapper


def _convert_bf16(
    opt_level: str = "O1",
    bf16_file_path: str = "",
    fp32_file_path: str = "",
    isVerbose: bool = False,  # noqa: N803 - the bridge's name
) -> None:
    """Patch torch's operators permanently to cast hpu tensors between float32 and bfloat16.

    The arguments and errors are those of :func:`_convert_with_float16`.
    """
    _convert(opt_level, bf16_file_path, fp32_file_path, torch.bfloat16, verbose=isVerbose)


def _convert_with_float16(  # noqa: PLR0913, PLR0917 - the bridge's signature
    opt_level: str = "O1",
    bf16_file_path: str = "",
    fp32_file_path: str = "",
    fp16_file_path: str = "",
    isVerbose: bool = False,  # noqa: N803 - the bridge's name
    low_precision_type: torch.dtype = torch.bfloat16,
) -> None:
    """Patch torch's operators permanently to cast hpu tensors between float32 and a lower precision.

    Level O1 follows the lists, files with one operator per line, of which ``""`` is the default one. O2 runs matrix
    products and convolutions in the lower precision and the rest in float32.

    Raises:
        AssertionError: If the level is unknown, or an operator is in both lists.
        OSError: If a file cannot be read.
        TypeError: If a path is None at level O1.
    """
    low_path = fp16_file_path if low_precision_type == torch.float16 else bf16_file_path
    _convert(opt_level, low_path, fp32_file_path, low_precision_type, verbose=isVerbose)


convert: Callable[..., None] = _convert_with_float16 if _HAS_FLOAT16 else _convert_bf16
