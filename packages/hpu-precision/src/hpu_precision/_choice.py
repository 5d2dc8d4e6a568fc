"""What a precision value means here: on this SynapseAI release, this generation of cards and this torch."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Final, Literal

import torch

import hpu_core
from hpu_precision import _hmp
from hpu_precision._casting import Casting
from hpu_precision._float8 import Float8
from hpu_precision.op_lists import OpLists, level_op_lists

Label = Literal["32-true", "16-mixed", "bf16-mixed", "bf16-true", "fp8"]

# By `str(value)`, so that numbers and strings are one.
_LABELS: Final[dict[str, Label]] = {
    "32": "32-true",
    "32-true": "32-true",
    "16": "16-mixed",
    "16-mixed": "16-mixed",
    "bf16": "bf16-mixed",
    "bf16-mixed": "bf16-mixed",
    "bf16-true": "bf16-true",
    "fp8": "fp8",
}

_FIRST_GENERATION: Final = "GAUDI"

PathOrNames = str | PathLike[str] | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments that both plugins take beside the precision; their docstrings explain them."""

    opt_level: str = "O1"
    verbose: bool = False
    bf16_file_path: str | PathLike[str] | None = None
    fp32_file_path: str | PathLike[str] | None = None
    bf16_ops: Iterable[str] | None = None
    fp32_ops: Iterable[str] | None = None
    hmp_params: Mapping[str, Any] | None = None
    scaler: "torch.amp.GradScaler | None" = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done.

    Attributes:
        label: The precision, as Lightning calls it.
        casting: Casts by op lists; None where nothing is cast.
        scaler: Scales losses against underflow in fp16; None elsewhere.
        float8: Computes in fp8; None elsewhere.
    """

    label: Label
    casting: Casting | None = None
    scaler: "torch.amp.GradScaler | None" = None
    float8: Float8 | None = None

    @property
    def compute_dtype(self) -> torch.dtype:
        """What matrix products are computed in."""
        if self.float8 is not None:
            return getattr(torch, "float8_e4m3fn", torch.bfloat16)
        return {"32-true": torch.float32, "16-mixed": torch.float16}.get(self.label, torch.bfloat16)

    def context(self) -> AbstractContextManager[Any] | None:
        """Return a context in which a module runs in this precision; None where no types are cast."""
        if self.casting is None:
            return None
        return self.casting.on() if self.float8 is None else _both(self.casting, self.float8)


@contextmanager
def _both(casting: Casting, float8: Float8) -> Iterator[None]:
    with casting.on(), float8.on():
        yield


def choose(precision: object, options: Options, tell: Callable[[str], None], warn: Callable[[str], None]) -> Choice:
    """Decide what a precision value and its options mean here.

    Args:
        precision: As the user gave it.
        options: The other arguments.
        tell: Shows a line of text to the user.
        warn: Shows a warning to the user.

    Raises:
        ValueError: An argument is out of its range, or does not go with another one; `OpListError` for op lists.
        TypeError: An argument is of a wrong type.
        NotImplementedError: The cards or torch do not have this precision.
    """
    label = _label(precision)
    options = _with_hmp_params(options)
    lists = _lists(options)
    has_lower_list = any((options.bf16_ops, options.bf16_file_path))
    if label == "16-mixed" and (has_lower_list or _hmp.is_offered()):
        # A list for bf16 says what the lower precision is, and so does HMP.
        label = "bf16-mixed"
    if options.scaler is not None and label != "16-mixed":
        raise ValueError(f"`scaler` must be left out unless losses need scaling, which {label!r} does not")
    if label in {"32-true", "bf16-true"}:
        if _gives_lists(options):
            raise ValueError(
                f"op lists must come with a mixed precision such as 'bf16-mixed': {label!r} runs every op in one type"
            )
        return Choice(label)
    _check_card(label)
    scaler = (options.scaler or _scaler()) if label == "16-mixed" else None
    dtype = torch.float16 if label == "16-mixed" else torch.bfloat16
    casting = Casting(lists, dtype, verbose=options.verbose, tell=tell)
    return Choice(label, casting, scaler, Float8(warn) if label == "fp8" else None)


def _label(precision: object) -> Label:
    label = None if isinstance(precision, bool) else _LABELS.get(str(precision))
    if label is None:
        raise ValueError(
            f"`precision` must be 32, 16 or one of {', '.join(map(repr, _LABELS))}, got {precision!r}; the README of "
            "hpu-precision says what each means"
        )
    return label


def _with_hmp_params(options: Options) -> Options:
    """Return options in which the entries of `hmp_params` stand as the arguments that they are other names of."""
    parameters = options.hmp_params
    if parameters is None:
        return options
    if _gives_lists(options) or options.opt_level != "O1" or options.verbose:
        raise ValueError("`hmp_params` must be given alone: it holds the level, verbosity and op lists itself")
    known = ("level", "verbose", "bf16_ops", "fp32_ops")
    for key in parameters:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"`hmp_params` must have no other keys than {', '.join(known)}, got {key!r}{hint}")
    # None stands for HMP's default, so that `dict.fromkeys(...)` is a start.
    given = {key: value for key, value in parameters.items() if value is not None}
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


def _gives_lists(options: Options) -> bool:
    given = (options.bf16_ops, options.fp32_ops, options.bf16_file_path, options.fp32_file_path)
    return any(value is not None and value != "" for value in given)


def _lists(options: Options) -> OpLists:
    lists = level_op_lists(options.opt_level)
    if not _gives_lists(options):
        return lists
    if options.opt_level != "O1":
        raise ValueError(
            f"`opt_level` must be 'O1' when op lists are given, got {options.opt_level!r}, which has lists of its own"
        )
    return OpLists.create(
        options.bf16_ops,
        options.fp32_ops,
        bf16_file_path=options.bf16_file_path,
        fp32_file_path=options.fp32_file_path,
    )


def _check_card(label: Label) -> None:
    """Refuse what the first generation cannot compute; where no card is found, the training process will see."""
    if label == "bf16-mixed" or hpu_core.device_name() != _FIRST_GENERATION:
        return
    name = {"16-mixed": "float16", "fp8": "fp8"}[label]
    raise NotImplementedError(
        f"precision={label!r} needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards, which do not "
        f"compute in {name}: use precision='bf16-mixed'"
    )


def _scaler() -> "torch.amp.GradScaler":
    if not hasattr(torch.amp, "GradScaler"):
        raise NotImplementedError(
            "precision='16-mixed' needs a gradient scaler, which torch has for hpu from 2.3 on, and this is "
            f"{torch.__version__}: use precision='bf16-mixed', which needs none"
        )
    return torch.amp.GradScaler("hpu")
