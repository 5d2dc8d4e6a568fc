"""Op lists: operators for the lower precision and for float32, with the same meaning on every SynapseAI release.

The default lists are text files in the directory `default_lists` next to this module, which users can copy and edit.
They are those of Intel's bridge 1.19.0, the only release whose lists were published completely. HMP uses the same ones.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike

from hpu_precision import _op_list_parser, _op_names
from hpu_precision._op_list_parser import Entry, OpListError

__all__ = [
    "OpListError",
    "OpLists",
    "default_op_lists",
    "level_op_lists",
    "names_of",
]


@dataclass(frozen=True, slots=True)
class OpLists:
    """Operators by the dtype they run in; those in no list run in the dtype of their inputs.

    `OpLists.create` validates the names. `default_op_lists()` returns the default.

    Attributes:
        lower: Operators that run in the lower precision: bfloat16, or float16 with "16-mixed".
        fp32: Operators that run in float32.
        promote: Operators that run in the widest dtype of their inputs.
    """

    lower: frozenset[str]
    fp32: frozenset[str]
    promote: frozenset[str] = frozenset()

    @classmethod
    def create(
        cls,
        bf16_ops: Iterable[str] | None = None,
        fp32_ops: Iterable[str] | None = None,
        *,
        bf16_file_path: str | PathLike[str] | None = None,
        fp32_file_path: str | PathLike[str] | None = None,
    ) -> "OpLists":
        """Create op lists from a user's names; a missing list is the default one.

        Names in a given list are removed from the default lists, so the user's lists take precedence.

        Args:
            bf16_ops: Names for the lower precision, such as `["linear", "conv2d"]`.
            fp32_ops: Names for float32.
            bf16_file_path: Text file with names for the lower precision, one per line; blank lines and text after "#"
                are ignored. An empty path selects the default list, as with HMP.
            fp32_file_path: Text file with names for float32.

        Raises:
            OpListError: A list is empty, a name is unknown, or an operator is in both lists.
            OSError: A file cannot be read.
            TypeError: A list is a string.
            ValueError: A list is given both as a file and in Python.

        >>> lists = OpLists.create(bf16_ops=["linear", "softplus"])
        >>> sorted(lists.lower), "softplus" in lists.fp32, "log" in lists.fp32
        (['linear', 'softplus'], False, True)
        """
        lower = _parse("bf16", bf16_ops, bf16_file_path)
        fp32 = _parse("fp32", fp32_ops, fp32_file_path)
        _validate_names([*lower, *fp32])
        _validate_disjoint(lower, fp32)
        default = default_op_lists()
        given_lower, given_fp32 = (frozenset(entry.name for entry in entries) for entries in (lower, fp32))
        lower_names = given_lower or _exclude(default.lower, given_fp32)
        fp32_names = given_fp32 or _exclude(default.fp32, given_lower)
        return cls(lower_names, fp32_names, _exclude(names_of("promote"), lower_names | fp32_names))


@functools.cache
def default_op_lists() -> OpLists:
    """Return the default op lists, which are those of Intel's bridge 1.19.0.

    Unlike on CUDA, batch_norm, dropout, mean and softmax run in the lower precision.
    """
    lower, fp32, promote = (names_of(name) for name in ("lower", "fp32", "promote"))
    # An operator in several lists runs in the lower precision rather than in float32, and in that rather than promoted.
    return OpLists(lower, fp32 - lower, promote - lower - fp32)


def unlisted_op_lists(lists: OpLists) -> OpLists:
    """Return the casts of operators that fail in mixed precision without one, and that op lists do not have.

    CUDA's autocast or the CPU's casts each of these, and the bridge's lists name none.
    """
    named = lists.lower | lists.fp32 | lists.promote
    return OpLists(*(_exclude(names_of(f"unlisted_{policy}"), named) for policy in ("lower", "fp32", "promote")))


def level_op_lists(level: str) -> OpLists:
    """Return the op lists of one of HMP's optimization levels.

    Args:
        level: "O1" for the default lists. "O2" for convolutions and matrix products in the lower precision and all
            other listed operators, including `linear` as in HMP, in float32.

    Raises:
        ValueError: The level is unknown.
    """
    if level not in {"O1", "O2"}:
        raise ValueError(f"`opt_level` must be 'O1' or 'O2', got {level!r}")
    if level == "O1":
        return default_op_lists()
    lower = names_of("o2_lower")
    return OpLists(lower, names_of("lower").union(*map(names_of, ("fp32", "promote", "hmp"))) - lower)


@functools.cache
def names_of(name: str) -> frozenset[str]:
    """Return the names in a text file of `default_lists`.

    Those in "lower", "fp32" and "promote" are known to be accepted by the bridge's autocast, and those in "hmp" by
    every HMP (the bridge's history).
    """
    text = resources.files("hpu_precision").joinpath(f"default_lists/{name}.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _parse(kind: str, names: Iterable[str] | None, path: str | PathLike[str] | None) -> Sequence[Entry]:
    # HMP's default for a path is an empty string.
    if path is not None and str(path):
        if names is not None:
            raise ValueError(
                f"`{kind}_ops` and `{kind}_file_path` must not be given together, got {names!r} and {path!r}"
            )
        return _op_list_parser.parse_file(path, f"{kind}_file_path")
    return [] if names is None else _op_list_parser.parse_names(names, f"{kind}_ops")


def _validate_names(entries: Iterable[Entry]) -> None:
    """Raise if a name has no operator."""
    for entry in entries:
        if not _op_names.operators(entry.name):
            raise OpListError(
                f"{entry.location}: an op list must have the name of an op of torch, such as linear, got {entry.name!r}"
            )


def _validate_disjoint(lower: Iterable[Entry], fp32: Iterable[Entry]) -> None:
    """Raise if an operator is in both lists, possibly under different names."""
    lower_by_operator = {operator: entry for entry in lower for operator in _op_names.operators(entry.name)}
    for entry in fp32:
        for operator in sorted(_op_names.operators(entry.name)):
            if other := lower_by_operator.get(operator):
                what = repr(entry.name)
                if other.name != entry.name:
                    what = f"{other.name!r} and {entry.name!r}, which are the same operator in torch,"
                raise OpListError(
                    f"an op must be in one list only, got {what} in {other.location} (bf16) and {entry.location} (fp32)"
                )


def _exclude(names: frozenset[str], excluded: frozenset[str]) -> frozenset[str]:
    """Return the names that share no operator with the excluded ones."""
    operators = _op_names.operators_of(excluded)
    return frozenset(name for name in names if not _op_names.operators(name) & operators)
