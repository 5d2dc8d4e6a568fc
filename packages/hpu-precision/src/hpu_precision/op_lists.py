"""Op lists: which operators run in the lower precision and which in float32, with one meaning on every release.

The lists that hold where the user gives none lie in the folder `default_lists` beside this module, as text files that
can be copied to start one's own from. They are those of Intel's bridge at 1.19.0, which is the one release whose lists
were published whole; HMP is given the same.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike

from hpu_precision import _entries, _names
from hpu_precision._entries import Entry, OpListError

__all__ = ["OpListError", "OpLists", "bridge_names", "default_op_lists", "hmp_names", "in_words_of", "level_op_lists"]


@dataclass(frozen=True, slots=True)
class OpLists:
    """Operators by the type they run in. What is in no list runs in the type of its inputs.

    Make one with `OpLists.create`, which checks the names; `default_op_lists()` is what holds otherwise.

    Attributes:
        lower: Run in the lower precision, which is bf16, or fp16 under fp16 precision.
        fp32: Run in float32.
        promote: Run in the widest type among their inputs.
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
        """Make lists of a user's names; a list that is not given is the default one.

        A name in a given list leaves the default lists, so that what the user says always holds.

        Args:
            bf16_ops: Names for the lower precision, such as `["linear", "conv2d"]`.
            fp32_ops: Names for float32.
            bf16_file_path: A text file with such names, one on each line; blank lines and what follows a "#" do not
                count. An empty path stands for the default list, as it does for HMP.
            fp32_file_path: A text file with names for float32.

        Raises:
            OpListError: A file or a name cannot be used, or an op is in both lists.
            TypeError: A list is no collection of strings.
            ValueError: A list is given both as a file and in Python.

        >>> lists = OpLists.create(bf16_ops=["linear", "softplus"])
        >>> sorted(lists.lower), "softplus" in lists.fp32, "log" in lists.fp32
        (['linear', 'softplus'], False, True)
        """
        lower = _given("bf16", bf16_ops, bf16_file_path)
        fp32 = _given("fp32", fp32_ops, fp32_file_path)
        _check(lower)
        _check(fp32)
        _check_apart(lower, fp32)
        default = default_op_lists()
        chosen_lower, chosen_fp32 = (frozenset(entry.name for entry in entries) for entries in (lower, fp32))
        lower_names = chosen_lower or _without(default.lower, chosen_fp32)
        fp32_names = chosen_fp32 or _without(default.fp32, chosen_lower)
        return cls(
            lower=lower_names,
            fp32=fp32_names,
            promote=_without(_packaged("promote"), lower_names | fp32_names),
        )


@functools.cache
def default_op_lists() -> OpLists:
    """Return the lists that hold where the user gives none.

    Unlike on CUDA, batch_norm, dropout, mean and softmax run in the lower precision. Source: Intel's bridge at 1.19.0.
    """
    lower, fp32, promote = (_packaged(name) for name in ("lower", "fp32", "promote"))
    # Where two lists name an op, the lower precision goes before float32 and that before the widest type.
    return OpLists(lower, fp32 - lower, promote - lower - fp32)


@functools.cache
def hmp_names() -> frozenset[str]:
    """Return the names that HMP understands on every release that has it. Source: the bridge's history."""
    return _packaged("hmp")


@functools.cache
def bridge_names() -> frozenset[str]:
    """Return the names that the bridge's own lists are known to understand."""
    return frozenset().union(*(_packaged(name) for name in ("lower", "fp32", "promote")))


def level_op_lists(level: str) -> OpLists:
    """Return the lists that stand for one of HMP's levels.

    Args:
        level: "O1" for the default lists; "O2" for convolutions and products of matrices in the lower precision and
            every other op that the default lists name in float32. As HMP, "O2" counts `linear` to the others.

    Raises:
        ValueError: There is no such level.
    """
    if level not in {"O1", "O2"}:
        raise ValueError(f"`opt_level` must be 'O1' or 'O2', got {level!r}")
    lower = _packaged("o2_lower")
    return default_op_lists() if level == "O1" else OpLists(lower, (bridge_names() | hmp_names()) - lower)


def in_words_of(vocabulary: frozenset[str], names: Iterable[str]) -> frozenset[str]:
    """Return the names of a vocabulary, HMP's or the bridge's, for the operators that a list's names stand for.

    >>> sorted(in_words_of(bridge_names(), ["cross_entropy", "truediv", "relu"]))
    ['cross_entropy_loss', 'div', 'true_divide', 'truediv']
    """
    operators = _names.operators_of(names)
    return frozenset(word for word in vocabulary if _names.operators(word) & operators)


def _packaged(name: str) -> frozenset[str]:
    text = resources.files("hpu_precision").joinpath(f"default_lists/{name}.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _given(kind: str, names: Iterable[str] | None, path: str | PathLike[str] | None) -> Sequence[Entry]:
    # HMP's own default for a path is the empty one.
    if path is not None and str(path):
        if names is not None:
            raise ValueError(
                f"`{kind}_ops` and `{kind}_file_path` are two ways to give one list, got both: {path!r} and {names!r}"
            )
        return _entries.from_file(path, f"{kind}_file_path")
    return [] if names is None else _entries.from_names(names, f"{kind}_ops")


def _check(entries: Iterable[Entry]) -> None:
    """Refuse names that stand for no operator."""
    for entry in entries:
        if not _names.operators(entry.name):
            nearest = _names.nearest(entry.name)
            hint = f", did you mean {nearest!r}?" if nearest else ""
            raise OpListError(f"{entry.place}: torch has no op called {entry.name!r}{hint}")


def _check_apart(lower: Iterable[Entry], fp32: Iterable[Entry]) -> None:
    """Refuse an operator in both lists, by whatever names."""
    owners = {operator: entry for entry in lower for operator in _names.operators(entry.name)}
    for entry in fp32:
        for operator in sorted(_names.operators(entry.name)):
            other = owners.get(operator)
            if other is None:
                continue
            places = f"{other.place} (bf16) and {entry.place} (fp32)"
            if other.name == entry.name:
                raise OpListError(f"an op must be in one list only, found {entry.name!r} in {places}")
            raise OpListError(
                f"an op must be in one list only, and {other.name!r} and {entry.name!r} are one in torch: {places}"
            )


def _without(names: frozenset[str], taken: frozenset[str]) -> frozenset[str]:
    """Return names that stand for no operator that the taken ones stand for."""
    operators = _names.operators_of(taken)
    return frozenset(name for name in names if not _names.operators(name) & operators)
