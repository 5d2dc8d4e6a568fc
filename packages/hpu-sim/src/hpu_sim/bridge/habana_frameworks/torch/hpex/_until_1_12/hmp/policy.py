"""Cast policy of HMP."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Operators that cast only their first argument, and neither statistics nor weights.
NORMS: Final = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})
#: Operators that write to their first argument, and therefore do not cast it.
IN_PLACE: Final = frozenset({"iadd"})


class Policy:
    """Casts of every patched operator, set by :func:`convert`.

    Attributes:
        low: Operators that run in the lower precision.
        fp32: Operators that run in float32.
        promote: Operators that run in the widest precision among their inputs.
        low_dtype: The lower precision.
        verbose: Whether to print each kind of cast once.
        enabled: Whether operators cast.
    """

    def __init__(self) -> None:
        self.low: frozenset[str] = frozenset()
        self.fp32: frozenset[str] = frozenset()
        self.promote: frozenset[str] = frozenset()
        self.low_dtype = torch.bfloat16
        self.verbose = False
        self.enabled = True
        self._printed: set[str] = set()

    def cast(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of an operator, cast by its policy."""
        dtype = self._target_dtype(name, args, kwargs) if self.enabled else None
        if dtype is None:
            return args, kwargs

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            if not self._is_eligible(tensor) or tensor.dtype == dtype:
                return tensor
            self._print_once(f"hmp:cast {name}: {tensor.dtype} to {dtype} (simulated)")
            return tensor.to(dtype)

        if name in IN_PLACE:
            return (args[0], *_map_tensors(args[1:], cast)), kwargs
        if name in NORMS:
            if not args:
                return args, {**kwargs, "input": _map_tensors(kwargs["input"], cast)}
            return (_map_tensors(args[0], cast), *args[1:]), kwargs
        return _map_tensors(args, cast), {
            key: value if key == "out" else _map_tensors(value, cast) for key, value in kwargs.items()
        }

    def _target_dtype(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
        if name in self.low:
            return self.low_dtype
        if name in self.fp32:
            return torch.float32
        if name not in self.promote:
            return None
        if name in IN_PLACE:
            return args[0].dtype if self._is_eligible(args[0]) else None
        dtypes: set[torch.dtype] = set()

        def collect(tensor: torch.Tensor) -> torch.Tensor:
            if self._is_eligible(tensor):
                dtypes.add(tensor.dtype)
            return tensor

        _map_tensors((args, {key: value for key, value in kwargs.items() if key != "out"}), collect)
        return torch.float32 if torch.float32 in dtypes else None

    def _is_eligible(self, tensor: torch.Tensor) -> bool:
        # CPU tensors, of a data pipeline for example, are not cast.
        return tensor.device.type == "hpu" and tensor.dtype in {torch.float32, self.low_dtype}

    def _print_once(self, line: str) -> None:
        if self.verbose and line not in self._printed:
            self._printed.add(line)
            print(line)  # noqa: T201 - requested by isVerbose


def _map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _map_tensors(item, function) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_map_tensors(item, function) for item in value)
    return value


#: The one policy of the process.
policy: Final = Policy()


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Return a context manager that disables casts, for the optimizer's step.

    As in the bridge, an exception in its body leaves casts disabled.
    """
    policy.enabled = False
    yield
    policy.enabled = True
