"""Names of a checkpoint's weights as the target has them."""

import collections
import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from hpu_export._lazy_tensor import LazyTensor

__all__ = [
    "StateDictMismatchError",
    "TargetNames",
    "count_fitting",
    "drop_ignored",
    "drop_tied",
    "match",
    "strip",
    "unwrap",
]

# Modules that wrappers put between a module and its parameters: Lightning's strategies, torch's FSDP, torch.compile and
# activation checkpointing.
_WRAPPERS: Final = frozenset({"_checkpoint_wrapped_module", "_forward_module", "_fsdp_wrapped_module", "_orig_mod"})
# DDP and DeepSpeed wrap the whole module. Elsewhere the name can be the user's.
_OUTERMOST: Final = "module."
# The attribute that most LightningModules keep their model in, and Fabric scripts their key.
_ATTRIBUTE: Final = "model."
# Names in an error; the exception has all.
_SHOWN: Final = 20


class StateDictMismatchError(ValueError):
    """The checkpoint's weights do not fit the target.

    Attributes:
        missing: Names that only the target has.
        unexpected: Names that only the checkpoint has.
        misshaped: Names with the shapes of checkpoint and target.
    """

    def __init__(
        self,
        target: str,
        missing: Sequence[str],
        unexpected: Sequence[str],
        misshaped: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> None:
        self.missing = list(missing)
        self.unexpected = list(unexpected)
        self.misshaped = dict(misshaped)
        shapes = [f"{name} {found} for {wanted}" for name, (found, wanted) in self.misshaped.items()]
        lists = {"missing": self.missing, "unexpected": self.unexpected, "mis-shaped": shapes}
        found = "; ".join(f"{kind}: {_shorten(names)}" for kind, names in lists.items() if names)
        super().__init__(
            f"the checkpoint must fit {target}, nothing was written: {found} (`prefix` selects a part of its names, "
            "`ignore` leaves names out)"
        )


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True)
class TargetNames:
    """What the target's own state dict says.

    Attributes:
        description: The target, for errors.
        shapes: Shapes by name, in the target's order.
        tied: Groups of names of one parameter each.
        ignored: Regular expressions of names that the target ignores when it loads.
    """

    description: str
    shapes: Mapping[str, tuple[int, ...]]
    tied: Sequence[Sequence[str]] = field(default_factory=list)
    ignored: Sequence[str] = field(default_factory=list)


def unwrap(weights: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Return the weights by their names without what wrappers have added.

    Raises:
        ValueError: Two names become one.
    """
    names = {name: ".".join(part for part in name.split(".") if part not in _WRAPPERS) for name in weights}
    if names and all(name.startswith(_OUTERMOST) for name in names.values()):
        names = {name: short.removeprefix(_OUTERMOST) for name, short in names.items()}
    return _rename(weights, names)


def strip(weights: Mapping[str, LazyTensor], prefix: str | None) -> dict[str, LazyTensor]:
    """Return the weights whose names begin with a prefix, without it; by default `model.` if all have it.

    Raises:
        ValueError: No name begins with it.
    """
    if prefix is None:
        prefix = _ATTRIBUTE if all(name.startswith(_ATTRIBUTE) for name in weights) else ""
    names = {name: name.removeprefix(prefix) for name in weights if name.startswith(prefix)}
    if not names:
        raise ValueError(
            f"`prefix` must be the start of a weight's name, such as {next(iter(weights), 'none')!r}, got {prefix!r}"
        )
    return _rename(weights, names)


def drop_ignored(weights: Mapping[str, LazyTensor], patterns: Collection[str]) -> dict[str, LazyTensor]:
    """Return the weights whose names match none of the shell patterns."""
    return {n: weight for n, weight in weights.items() if not any(fnmatch.fnmatchcase(n, p) for p in patterns)}


def match(weights: Mapping[str, LazyTensor], target: TargetNames, prefix: str | None) -> dict[str, LazyTensor]:
    """Return the weights by the target's names, in its order, with tied ones once.

    Args:
        weights: Weights by unwrapped names.
        target: The target's names.
        prefix: What precedes the target's names; by default what fits most of them.

    Raises:
        StateDictMismatchError: Names or shapes differ.
        ValueError: Weights that the target ties differ.
    """
    if prefix is None:
        prefix = _find_prefix(weights, target.shapes)
    found = {n.removeprefix(prefix): weight for n, weight in weights.items() if n.startswith(prefix)}
    unexpected = [n for n in weights if not n.startswith(prefix) or n.removeprefix(prefix) not in target.shapes]
    group_of = {name: group for group in target.tied for name in group}
    missing = [name for name in target.shapes if not any(other in found for other in group_of.get(name, [name]))]
    misshaped = {
        name: (found[name].shape, shape)
        for name, shape in target.shapes.items()
        if name in found and found[name].shape != shape
    }
    unexpected = [name for name in unexpected if not any(re.search(each, name) for each in target.ignored)]
    if missing or unexpected or misshaped:
        raise StateDictMismatchError(target.description, missing, unexpected, misshaped)
    for group in target.tied:
        first, *others = [name for name in group if name in found]
        for other in others:
            if not _equal(found[first], found[other]):
                raise ValueError(
                    f"{first!r} and {other!r} must be equal, because {target.description} ties them, got two tensors: "
                    "set `tie_word_embeddings` to false in its configuration"
                )
        # The first name is the one that transformers saves.
        found[group[0]] = found[first]
    tied = {name for group in target.tied for name in group[1:]}
    return {name: found[name] for name in target.shapes if name in found and name not in tied}


def count_fitting(names: Collection[str], target: TargetNames) -> int:
    """Return how many names the target has, behind the prefix that fits most."""
    prefix = _find_prefix(names, target.shapes)
    return sum(name.startswith(prefix) and name.removeprefix(prefix) in target.shapes for name in names)


def drop_tied(weights: Mapping[str, LazyTensor]) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    """Return each tensor once, and the names that are left out with the names that they stand for."""
    first = {weight.tie_key: name for name, weight in reversed(list(weights.items())) if weight.tie_key is not None}
    tied = {n: first[w.tie_key] for n, w in weights.items() if w.tie_key is not None and first[w.tie_key] != n}
    return {name: weight for name, weight in weights.items() if name not in tied}, tied


def _rename(weights: Mapping[str, LazyTensor], names: Mapping[str, str]) -> dict[str, LazyTensor]:
    counts = collections.Counter(names.values())
    if twice := [name for name, short in names.items() if counts[short] > 1]:
        raise ValueError(f"the names of weights must differ without their wrappers, got {_shorten(twice)}")
    return {short: weights[name] for name, short in names.items()}


def _find_prefix(names: Collection[str], wanted: Collection[str]) -> str:
    """Return the prefix that most names have before a name of the target; the shortest of several."""
    votes: collections.Counter[str] = collections.Counter()
    for name in names:
        parts = name.split(".")
        for count in range(len(parts)):
            if ".".join(parts[count:]) in wanted:
                votes[".".join([*parts[:count], ""])] += 1
    return min(votes, key=lambda prefix: (-votes[prefix], len(prefix)), default="")


def _equal(first: LazyTensor, second: LazyTensor) -> bool:
    if first.tie_key is not None and first.tie_key == second.tie_key:
        return True
    return torch.equal(first.read(), second.read())
