"""Regions of a model: the modules that torch.compile makes graphs of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["Region", "Regions", "find_regions", "unwrap"]

Regions = Union[Literal["blocks"], "Sequence[str | type[nn.Module]]"]
"""Which modules are regions: "blocks", or names of modules and classes."""

# Wrappers whose `module` is the model. Names, because a wrapper's package may not be installed.
_WRAPPERS = {"_FabricModule", "DeepSpeedEngine", "DistributedDataParallel", "FullyShardedDataParallel"}
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass(frozen=True, eq=False)
class Region:
    """Modules that share their graphs.

    Attributes:
        name: Name of their class, or of the only module.
        modules: The modules by name.
    """

    name: str
    modules: Mapping[str, nn.Module]

    def __str__(self) -> str:
        names = list(self.modules)
        if len(names) == 1:
            return names[0] or self.name
        return f"{self.name} ({len(names)} modules: {names[0]} to {names[-1]})"


def find_regions(module: nn.Module, regions: Regions = "blocks") -> list[Region]:
    """Return the regions of a model.

    "blocks" are the repeated ones: elements of a ModuleList or ModuleDict that have parts of their own, and those of
    which a Sequential has several of one class. Where a model has no such list, they are the modules of a class with
    parts that occurs more than once. Outer blocks come before inner ones. Without either,
    they are the modules that FSDP shards each by itself, else the model; of a LightningModule, whose steps call its
    parts, each direct part that has parameters.

    >>> layers = [nn.TransformerEncoderLayer(8, 2) for _ in range(3)]
    >>> [str(region) for region in find_regions(nn.Sequential(nn.Embedding(9, 8), nn.ModuleList(layers)))]
    ['TransformerEncoderLayer (3 modules: 1.0 to 1.2)']

    Args:
        module: The model, possibly wrapped for several devices.
        regions: "blocks", or names of modules ("model.head"), names of classes and classes.

    Raises:
        TypeError: `regions` has a wrong type.
        ValueError: The model has no such module.
    """
    root = unwrap(module)
    if isinstance(regions, str):
        if regions != "blocks":
            raise ValueError(
                f"`regions` must be 'blocks' or a list of names and classes, got {regions!r}: "
                f"write [{regions!r}] for one name"
            )
        return _group(_blocks(root)) or _group(_sharded(root)) or _parts(root)
    found: dict[str, nn.Module] = {}
    for wanted in regions:
        found.update(_named(root, wanted))
    if not found:
        raise ValueError("`regions` must name a module or a class, got an empty list")
    return _group(found.items())


def unwrap(module: nn.Module) -> nn.Module:
    """Return the model of a module that Fabric or a strategy has wrapped."""
    while _WRAPPERS & {each.__name__ for each in type(module).__mro__} and isinstance(
        inner := getattr(module, "module", None), nn.Module
    ):
        module = inner
    return module


def _named(root: nn.Module, wanted: str | type[nn.Module]) -> dict[str, nn.Module]:
    # Of a wrapper and its module, the latter, which comes second.
    modules = {_plain(name): module for name, module in root.named_modules() if name}
    if isinstance(wanted, type) and issubclass(wanted, nn.Module):
        found = {name: module for name, module in modules.items() if isinstance(module, wanted)}
    elif not isinstance(wanted, str):
        raise TypeError(f"`regions` must have names of modules, names of classes and classes, got {wanted!r}")
    elif wanted in modules:
        found = {wanted: modules[wanted]}
    else:
        found = {
            name: module
            for name, module in modules.items()
            if wanted in {each.__name__ for each in type(module).__mro__}
        }
    if not found:
        parts = [name for name, _ in root.named_children()]
        text = wanted if isinstance(wanted, str) else wanted.__name__
        raise ValueError(
            f"`regions` must name modules or classes of the model, got {text!r}: its direct parts are {parts}"
        )
    return found


def _plain(name: str) -> str:
    """Return the name of a module without those of FSDP's wrappers."""
    return name.replace("_fsdp_wrapped_module.", "").removesuffix("._fsdp_wrapped_module")


def _blocks(root: nn.Module) -> list[tuple[str, nn.Module]]:
    counts = Counter(type(each) for each in root.modules() if _is_block(each))

    def repeated(module: nn.Module) -> dict[str, nn.Module]:
        return {name: child for name, child in module.named_children() if counts[type(child)] > 1}

    return list(_outermost(root, _elements)) or list(_outermost(root, repeated))


def _outermost(
    module: nn.Module, select: Callable[[nn.Module], Mapping[str, nn.Module]], prefix: str = ""
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the parts that `select` chooses of each module, without parts of those."""
    chosen = select(module)
    for name, child in module.named_children():
        if name in chosen:
            yield prefix + name, unwrap(child)
        else:
            yield from _outermost(unwrap(child), select, f"{prefix}{name}.")


def _elements(module: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a list of modules."""
    if not isinstance(module, _CONTAINERS):
        return {}
    blocks = {name: child for name, child in module.named_children() if _is_block(unwrap(child))}
    if not isinstance(module, nn.Sequential):
        return blocks
    counts = Counter(type(unwrap(child)) for child in blocks.values())
    return {name: child for name, child in blocks.items() if counts[type(unwrap(child))] > 1}


def _is_block(module: nn.Module) -> bool:
    return not isinstance(module, _CONTAINERS) and any(True for _ in module.children()) and _has_parameters(module)


def _has_parameters(module: nn.Module) -> bool:
    # Metrics and losses have none.
    return next(module.parameters(), None) is not None


def _sharded(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the innermost modules that FSDP or FSDP2 has sharded, if there is one within the model."""
    found = {name: module for name, module in root.named_modules() if name and _is_sharded(module)}
    return [
        (_plain(name), unwrap(module))
        for name, module in found.items()
        if not any(_is_sharded(inner) for inner in module.modules() if inner is not module)
    ]


def _is_sharded(module: nn.Module) -> bool:
    return bool({"FSDPModule", "FullyShardedDataParallel"} & {each.__name__ for each in type(module).__mro__})


def _parts(root: nn.Module) -> list[Region]:
    parts: dict[str, nn.Module] = {}
    # Its name, because Lightning may not be installed.
    if any(each.__name__ == "LightningModule" for each in type(root).__mro__):
        parts = {name: unwrap(child) for name, child in root.named_children() if _has_parameters(child)}
    return [Region(type(part).__name__, {name: part}) for name, part in (parts or {"": root}).items()]


def _group(modules: Iterable[tuple[str, nn.Module]]) -> list[Region]:
    groups: dict[type[nn.Module], dict[str, nn.Module]] = {}
    for name, module in modules:
        groups.setdefault(type(module), {})[name] = module
    return [Region(kind.__name__, each) for kind, each in groups.items()]
