"""Modules of a program: which one runs, the names by which the program knows them, and its repeated blocks."""

from __future__ import annotations

import bisect
import contextlib
import weakref
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction import torch_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

#: Name of what no module runs or has.
OUTSIDE: Final = "outside of modules"
_WRAPPERS: Final = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module"})


class ModuleTracker:
    """Tracker of the module that runs, forward or backward.

    An autograd node runs for the module in which it was made, and recomputed activations for the module that computes
    them.

    Args:
        on_root: Function that gets the modules that are called outside of another one.
    """

    def __init__(self, on_root: Callable[[torch.nn.Module], None]) -> None:
        self._on_root = on_root
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._running: list[str] = []
        # Number of the autograd node after those of each part of the forward pass, and its module.
        self._ends: list[int] = []
        self._modules: list[str] = []
        self._latest = ""

    @contextlib.contextmanager
    def track(self) -> Iterator[None]:
        """Follow every module."""
        from torch.nn.modules import module as hooks

        before = hooks.register_module_forward_pre_hook(self._before)
        after = hooks.register_module_forward_hook(self._after, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def begin(self) -> None:
        """Begin a step, whose backward passes are those of its own forward passes."""
        self._ends.clear()
        self._modules.clear()

    def name(self, root: torch.nn.Module) -> None:
        """Name the modules below a root by its class; one that only wraps a model has no name of its own."""
        if [name for name, _ in root.named_children()] == ["module"]:
            self.name(root.get_submodule("module"))
        if any(child in self._names for child in root.children()):
            self._names.setdefault(root, "")
        for name, module in root.named_modules():
            self._names.setdefault(module, f"{type(root).__name__}.{name}".rstrip("."))

    def name_of(self, module: torch.nn.Module) -> str:
        """Return the name of a module; that of its class if it belongs to no root."""
        return self._names.get(module, type(module).__name__)

    @property
    def current(self) -> str:
        """Name of the innermost module that runs; empty outside of modules."""
        import torch

        running = self._running[-1] if self._running else ""
        if not torch_tools.is_backward():
            number = torch_tools.next_node_number()
            if not self._ends or number > self._ends[-1]:
                self._ends.append(number)
                self._modules.append(running)
            return running
        if torch.is_grad_enabled():
            return running
        node = torch_tools.node_number()
        index = len(self._ends) if node is None else bisect.bisect_right(self._ends, node)
        # What adds up gradients is no node of the forward pass, and follows the last one that is.
        self._latest = self._modules[index] if index < len(self._ends) else self._latest
        return self._latest

    def _before(self, module: torch.nn.Module, inputs: Any) -> None:
        del inputs
        if not self._running and not torch_tools.is_backward():
            self._on_root(module)
        self._running.append(self.name_of(module))

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        del module, inputs, output
        if self._running:
            self._running.pop()


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
        others = (each for each in children[parent] if each.isdigit() and each != part)
        return part.isdigit() and any(own & children.get((*parent, each), set()) for each in others)

    found = {}
    for name, inner in plain.items():
        parts = inner.split(".")
        row = ("*" if is_repeated(tuple(parts[:position]), part) else part for position, part in enumerate(parts))
        found[name] = ".".join(row) or (f"{name} itself" if name else OUTSIDE)
    return found


def row_of(name: str) -> str:
    """Return the row of a module whose siblings are not known: every number in its name is one of repeated blocks.

    >>> row_of("Model.layers.3._fsdp_wrapped_module.mlp")
    'layers.*.mlp'
    """
    return ".".join("*" if part.isdigit() else part for part in _in_program(name).split("."))


def _in_program(module: str) -> str:
    """Return a name without the class of the model, and without what strategies put around modules."""
    return ".".join(part for part in module.split(".")[1:] if part not in _WRAPPERS)


def repeated_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the outermost modules with children whose class their parent has twice, in the order of the model."""
    chosen: list[torch.nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        kinds = Counter(type(child) for child in module.children())
        for child in module.children():
            if kinds[type(child)] > 1 and any(True for _ in child.children()) and id(child) not in inside:
                chosen.append(child)
                inside.update(map(id, child.modules()))
    return chosen


def describe_blocks(model: torch.nn.Module) -> tuple[str, int]:
    """Return class and number of the repeated blocks."""
    found = repeated_blocks(model)
    names = sorted({type(_unwrapped(each)).__name__ for each in found})
    return " or ".join(names), len(found)


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    inner: torch.nn.Module = getattr(module, "_checkpoint_wrapped_module", module)
    return inner


def recompute_blocks(model: torch.nn.Module, count: int) -> None:
    """Recompute the activations of the first repeated blocks, if any, in the backward pass."""
    if not count:
        return
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    chosen = set(map(id, repeated_blocks(model)[:count]))
    apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)
