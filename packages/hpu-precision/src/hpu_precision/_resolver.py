"""Resolution of a precision argument for this SynapseAI release, Gaudi generation and torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Final

import torch

import hpu_core
from hpu_core import plugins
from hpu_precision import _hmp, _torch_2_3
from hpu_precision._autocast import AutocastPolicy
from hpu_precision._fp8 import FP8Converter
from hpu_precision.op_lists import OpLists, default_op_lists

_FIRST_GENERATION: Final = "GAUDI"

PathOrNames = str | PathLike[str] | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Arguments of the plugins other than `precision` and `device`; see HPUPrecisionPlugin."""

    opt_level: str = "O1"
    verbose: bool = False
    bf16_file_path: str | PathLike[str] | None = None
    fp32_file_path: str | PathLike[str] | None = None
    bf16_ops: Iterable[str] | None = None
    fp32_ops: Iterable[str] | None = None
    hmp_params: Mapping[str, Any] | None = None
    scaler: "torch.amp.GradScaler | None" = None


@dataclass(frozen=True, slots=True)
class ResolvedPrecision:
    """Precision to train in, and the objects that implement it.

    Attributes:
        name: Lightning's name of the precision.
        autocast: Casts by op lists; None if nothing is cast.
        scaler: Gradient scaler for float16; None otherwise.
        fp8: fp8 conversion; None otherwise.
    """

    # Any: "fp8" is not one of Lightning's names.
    name: Any
    autocast: AutocastPolicy | None = None
    scaler: "torch.amp.GradScaler | None" = None
    fp8: FP8Converter | None = None


def resolve(
    precision: object, options: Options, log: Callable[[str], None], warn: Callable[[str], None]
) -> ResolvedPrecision:
    """Resolve a precision argument and the plugin's options; see HPUPrecisionPlugin for the errors."""
    name = plugins.normalize_precision(precision)
    options = _merge_hmp_params(options)
    lists = _resolve_lists(options)
    has_bf16_list = any((options.bf16_ops, options.bf16_file_path))
    if name == "16-mixed" and (has_bf16_list or _hmp.is_available()):
        # A list for bf16 selects bf16 as the lower precision, and HMP supports no other.
        name = "bf16-mixed"
    if options.scaler is not None and name != "16-mixed":
        raise ValueError(f"`scaler` must be None unless precision is '16-mixed', got precision={name!r}")
    is_mixed = name not in {"32-true", "16-true", "bf16-true"}
    if not is_mixed and _has_lists(options):
        raise ValueError(
            f"op lists need a mixed precision such as 'bf16-mixed', got {name!r}, which runs every op in one dtype"
        )
    _validate_generation(name)
    if not is_mixed:
        return ResolvedPrecision(name)
    scaler = (options.scaler or _torch_2_3.make_scaler()) if name == "16-mixed" else None
    dtype = torch.float16 if name == "16-mixed" else torch.bfloat16
    autocast = AutocastPolicy(lists, dtype, verbose=options.verbose, log=log)
    return ResolvedPrecision(name, autocast, scaler, FP8Converter(warn, log) if name == "fp8" else None)


def _merge_hmp_params(options: Options) -> Options:
    """Return the options with the entries of `hmp_params` as the equivalent arguments."""
    hmp_params = options.hmp_params
    if hmp_params is None:
        return options
    if _has_lists(options) or options.opt_level != "O1" or options.verbose:
        raise ValueError(
            "`hmp_params` must not be combined with `opt_level`, `verbose` or op lists, because it contains them"
        )
    known = ("level", "verbose", "bf16_ops", "fp32_ops")
    if unknown := sorted(hmp_params.keys() - {*known}):
        raise ValueError(f"`hmp_params` must have no other keys than {', '.join(known)}, got {unknown}")
    # None selects HMP's default, as after `dict.fromkeys(...)`.
    given = {key: value for key, value in hmp_params.items() if value is not None}
    return replace(
        options,
        hmp_params=None,
        opt_level=given.get("level", "O1"),
        verbose=given.get("verbose", False),
        **_list_argument("bf16", given.get("bf16_ops")),
        **_list_argument("fp32", given.get("fp32_ops")),
    )


def _list_argument(kind: str, value: PathOrNames | None) -> dict[str, Any]:
    return {f"{kind}_file_path" if isinstance(value, (str, PathLike)) else f"{kind}_ops": value}


def _has_lists(options: Options) -> bool:
    lists = (options.bf16_ops, options.fp32_ops, options.bf16_file_path, options.fp32_file_path)
    return any(value is not None and value != "" for value in lists)


def _resolve_lists(options: Options) -> OpLists:
    if options.opt_level != "O1":
        raise ValueError(f"`opt_level` must be 'O1', got {options.opt_level!r}: name the ops in `bf16_ops`")
    if not _has_lists(options):
        return default_op_lists()
    return OpLists.create(
        options.bf16_ops,
        options.fp32_ops,
        bf16_file_path=options.bf16_file_path,
        fp32_file_path=options.fp32_file_path,
    )


def _validate_generation(name: str) -> None:
    """Raise if the first generation does not support the precision; an unknown generation is checked in training."""
    dtype = {"16-mixed": "float16", "16-true": "float16", "fp8": "fp8"}.get(name)
    if dtype is None or hpu_core.device_name() != _FIRST_GENERATION:
        return
    raise NotImplementedError(
        f"precision={name!r} needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards, which do not "
        f"support {dtype}: use precision='bf16-mixed'"
    )
