"""Names of modules as the program knows them, without those that strategies put around them."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

#: Name of what no module runs or has.
OUTSIDE: Final = "outside of modules"
_WRAPPERS: Final = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module"})
_DDP: Final = "DistributedDataParallel.module."


def user_name(module: str) -> str:
    """Return a module's name in the program, with ``*`` for the number of a repeated one.

    >>> user_name("LlamaForCausalLM.model.layers.12.mlp")
    'model.layers.*.mlp'
    """
    module = module.removeprefix(_DDP)
    _, _, name = _without_wrappers(module).partition(".")
    return ".".join("*" if part.isdigit() else part for part in name.split(".")) or (module and f"{module} itself")


def rows(names: set[str]) -> dict[str, str]:
    """Return the row of each module: its name, with ``*`` for the number of a repeated block."""
    children: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for length, part in enumerate(parts):
            children[tuple(parts[:length])].add(part)

    def is_repeated(parent: tuple[str, ...], part: str) -> bool:
        own = children.get((*parent, part), set())
        siblings = (each for each in children[parent] if each.isdigit() and each != part)
        return part.isdigit() and any(own & children.get((*parent, each), set()) for each in siblings)

    found = {}
    for name in names:
        parts = name.split(".")
        row = ("*" if is_repeated(tuple(parts[:position]), part) else part for position, part in enumerate(parts))
        found[name] = _without_wrappers(".".join(row)) or OUTSIDE
    return found


def _without_wrappers(module: str) -> str:
    return ".".join(part for part in module.removeprefix(_DDP).split(".") if part not in _WRAPPERS)
