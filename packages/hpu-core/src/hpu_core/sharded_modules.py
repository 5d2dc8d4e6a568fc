"""Modules that a strategy has sharded: their parameters stay parts, so they go on with the same strategy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from hpu_core._lightning import MisconfigurationException

# In a module's `__dict__`, beside its parameters and submodules.
_KEY: Final = "_hpu_sharding"

# Callbacks of Lightning that read or replace whole parameters; a subclass is one as well.
_NEED_WHOLE_PARAMETERS: Final = frozenset({"ModelPruning", "StochasticWeightAveraging", "WeightAveraging"})


@dataclass(frozen=True)
class Sharding:
    """How a module is sharded.

    Attributes:
        arguments: Arguments of Trainer and strategy that must be the same again, by name, such as "strategy".
        wrapper: torch's module around it, to be used again.
        is_whole: Whether each rank has all parameters, so that other strategies can take the module.
    """

    arguments: Mapping[str, Any]
    wrapper: nn.Module | None = None
    is_whole: bool = False


def note(module: nn.Module, sharding: Sharding) -> None:
    """Note how a module is sharded."""
    vars(module)[_KEY] = sharding


def find(module: nn.Module) -> Sharding | None:
    """Return how a module is sharded; None if it is not."""
    return vars(module).get(_KEY)


def check(module: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Check that a module is not sharded, or was sharded with the same arguments.

    Raises:
        ValueError: It was sharded with others; the message names the first one.
    """
    sharding = find(module)
    if sharding is None or (sharding.is_whole and sharding.arguments["strategy"] != arguments["strategy"]):
        return
    for name, value in sharding.arguments.items():
        if (other := arguments.get(name)) != value:
            raise ValueError(
                f"`{name}` must be {value!r}, with which this module was sharded, got {other!r}: use the same, or save "
                "a checkpoint with the first Trainer and load it into a new module"
            )


def check_callbacks(callbacks: Iterable[object]) -> None:
    """Check callbacks for those that need whole parameters, where each card has a part of them.

    Raises:
        MisconfigurationException: There is one; it would compute with one card's parts, silently where the shapes fit.
    """
    for callback in callbacks:
        names = [base.__name__ for base in type(callback).__mro__ if base.__name__ in _NEED_WHOLE_PARAMETERS]
        if names:
            raise MisconfigurationException(
                f"{type(callback).__name__} needs whole parameters, and this strategy shards them over the cards: use "
                "`strategy='hpu_ddp'`, or DeepSpeed in stage 1 or 2, or leave the callback out"
            )


def move_rest(module: nn.Module, device: torch.device) -> None:
    """Move what a strategy does not shard to the device: buffers, and metrics, whose states are none.

    Lightning moves neither of a module that is sharded already, and the end of a training has moved them to the host.
    """
    for part in module.modules():
        if next(part.parameters(), None) is None:
            part.to(device)
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(device))
