"""Op lists: operators for the lower precision and for float32, with the same meaning on every SynapseAI release.

The default lists are text files in the directory `default_lists` next to this module, which users can copy and edit.
They are those of Intel's bridge 1.19.0, the only release whose lists were published completely. HMP uses the same ones.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path

from hpu_precision import _op_names

__all__ = [
    "OpListError",
    "OpLists",
    "default_op_lists",
    "names_of",
]


class OpListError(ValueError):
    """Invalid op list."""


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
        if both := _op_names.operators_of(lower) & _op_names.operators_of(fp32):
            names = sorted(name for name in lower | fp32 if _op_names.operators(name) & both)
            raise OpListError(f"an op must be in one list only, got {', '.join(map(repr, names))} in both")
        default = default_op_lists()
        lower_names = lower or _exclude(default.lower, fp32)
        fp32_names = fp32 or _exclude(default.fp32, lower)
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


@functools.cache
def names_of(name: str) -> frozenset[str]:
    """Return the names in a text file of `default_lists`.

    Those in "lower", "fp32" and "promote" are known to be accepted by the bridge's autocast, and those in "hmp" by
    every HMP (the bridge's history).
    """
    text = resources.files("hpu_precision").joinpath(f"default_lists/{name}.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _parse(kind: str, names: Iterable[str] | None, path: str | PathLike[str] | None) -> frozenset[str]:
    """Return the names of a list, or of a file with one name per line; none without a list."""
    argument = f"{kind}_ops"
    # HMP's default for a path is an empty string.
    if path is not None and str(path):
        if names is not None:
            raise ValueError(f"`{argument}` and `{kind}_file_path` must not be given together, got {names!r}, {path!r}")
        argument = f"{kind}_file_path"
        # Some editors start a file with a byte order mark. A name that is not UTF-8 is an unknown one.
        lines = Path(path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
        names = [name for line in lines if (name := line.partition("#")[0].strip())]
    if names is None:
        return frozenset()
    if isinstance(names, (str, bytes)):
        raise TypeError(f"`{argument}` must be a collection of op names such as ['linear', 'conv2d'], got {names!r}")
    found = frozenset(names)
    if not found:
        raise OpListError(f"`{argument}` must name at least one op: leave the argument out for the default list")
    if unknown := sorted(name for name in found if not _op_names.operators(name)):
        raise OpListError(f"`{argument}` must have names of ops of torch, such as linear, got {unknown}")
    return found


def _exclude(names: frozenset[str], excluded: frozenset[str]) -> frozenset[str]:
    """Return the names that share no operator with the excluded ones."""
    operators = _op_names.operators_of(excluded)
    return frozenset(name for name in names if not _op_names.operators(name) & operators)
