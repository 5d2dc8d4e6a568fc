"""Which operators cast, and how."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Operators of which only the first tensor is cast: statistics and weights stay as they are.
NORMS: Final = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})
#: Operators that write their first argument, whose dtype is therefore given.
IN_PLACE: Final = frozenset({"iadd"})


class Policy:
    """What :func:`convert` decided, for every operator that was replaced.

    Attributes:
        low: Operators that run in the lower precision.
        fp32: Operators that run in float32.
        widest: Operators that run in the widest precision among their inputs.
        low_dtype: The lower precision.
        verbose: Whether casts are printed, each kind once.
        enabled: Whether anything is cast.
    """

    def __init__(self) -> None:
        self.low: frozenset[str] = frozenset()
        self.fp32: frozenset[str] = frozenset()
        self.widest: frozenset[str] = frozenset()
        self.low_dtype = torch.bfloat16
        self.verbose = False
        self.enabled = True
        self._printed: set[str] = set()

    def cast(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of an operator as it is to get them.

        Args:
            name: Name of the operator in the lists.
            arguments: Positional arguments.
            options: Named arguments; ``out`` is left alone.
        """
        dtype = self._target(name, arguments, options) if self.enabled else None
        if dtype is None:
            return arguments, options

        def change(tensor: torch.Tensor) -> torch.Tensor:
            if not self._is_castable(tensor) or tensor.dtype == dtype:
                return tensor
            self._report(f"hmp:cast {name}: {tensor.dtype} to {dtype} (simulated)")
            return tensor.to(dtype)

        if name in IN_PLACE:
            return (arguments[0], *_map(arguments[1:], change)), options
        if name in NORMS:
            if not arguments:
                return arguments, {**options, "input": _map(options["input"], change)}
            return (_map(arguments[0], change), *arguments[1:]), options
        return _map(arguments, change), {
            key: value if key == "out" else _map(value, change) for key, value in options.items()
        }

    def _target(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> torch.dtype | None:
        if name in self.low:
            return self.low_dtype
        if name in self.fp32:
            return torch.float32
        if name not in self.widest:
            return None
        if name in IN_PLACE:
            return arguments[0].dtype if self._is_castable(arguments[0]) else None
        seen: set[torch.dtype] = set()

        def look(tensor: torch.Tensor) -> torch.Tensor:
            if self._is_castable(tensor):
                seen.add(tensor.dtype)
            return tensor

        _map((arguments, {key: value for key, value in options.items() if key != "out"}), look)
        return torch.float32 if torch.float32 in seen else None

    def _is_castable(self, tensor: torch.Tensor) -> bool:
        # A host tensor of a data pipeline is none of the card's business.
        return tensor.device.type == "hpu" and tensor.dtype in {torch.float32, self.low_dtype}

    def _report(self, line: str) -> None:
        if self.verbose and line not in self._printed:
            self._printed.add(line)
            print(line)  # noqa: T201 - what isVerbose asks for


def _map(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _map(value, change) for key, value in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_map(value, change) for value in tree)
    return tree


#: The one policy of the process.
policy: Final = Policy()


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Return a context in which nothing is cast, for the optimizer's step.

    Where it is left by an exception, casts stay off: so it is on the bridge.
    """
    policy.enabled = False
    yield
    policy.enabled = True
