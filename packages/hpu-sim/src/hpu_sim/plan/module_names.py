"""Names of modules as the program knows them, without those that strategies put around them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Name of what no module runs or has.
OUTSIDE: Final = "outside of modules"
_WRAPPERS: Final = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module"})
_DDP: Final = "DistributedDataParallel.module."


def rows(names: Iterable[str]) -> dict[str, str]:
    """Return the row of each module: its name in the program, with ``*`` for the number of a repeated block.

    >>> rows([f"Llama.model.layers.{number}.mlp" for number in range(2)])["Llama.model.layers.1.mlp"]
    'model.layers.*.mlp'
    """
    plain = {name: _in_program(name) for name in names}
    children: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for name in plain.values():
        parts = name.split(".")
        for length, part in enumerate(parts):
            children[tuple(parts[:length])].add(part)

    def is_repeated(parent: tuple[str, ...], part: str) -> bool:
        own = children.get((*parent, part), set())
        siblings = (each for each in children[parent] if each.isdigit() and each != part)
        return part.isdigit() and any(own & children.get((*parent, each), set()) for each in siblings)

    found = {}
    for name, inner in plain.items():
        parts = inner.split(".")
        row = ("*" if is_repeated(tuple(parts[:position]), part) else part for position, part in enumerate(parts))
        found[name] = ".".join(row) or (f"{name} itself" if name else OUTSIDE)
    return found


def _in_program(module: str) -> str:
    """Return a name without the class of the model, and without what strategies put around modules."""
    inner = module.removeprefix(_DDP)
    parts = [part for part in inner.split(".") if part not in _WRAPPERS]
    return ".".join(parts if inner != module else parts[1:])
