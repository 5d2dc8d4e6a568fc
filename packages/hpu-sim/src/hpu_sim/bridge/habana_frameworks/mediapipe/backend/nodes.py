"""Nodes of a media pipe's graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Kind", "Node", "Operator", "Pipe", "TensorNode", "opnode_tensor_info"]

#: Part of a pipe that a node belongs to, in the order in which data pass them.
Kind = Literal["reader", "cpu", "decoder", "hpu"]


class opnode_tensor_info:  # noqa: N801 - the vendor's name
    """Type, shape (innermost first) and layout of a tensor."""

    def __init__(self, dtype: str, shape: NDArray[np.uint32], layout: str) -> None:
        self.dtype, self.shape, self.layout = dtype, shape, layout


@dataclass(frozen=True)
class Pipe:
    """What an operator knows of its pipe.

    Attributes:
        batch_size: Images per batch.
        is_legacy: Whether its graph is the one of Python.
    """

    batch_size: int
    is_legacy: bool


@dataclass(frozen=True)
class Operator:
    """Operator of media pipes.

    Attributes:
        name: Name in `fn`.
        kinds: Part of a pipe, by device ("cpu" or "hpu").
        make: Function that returns, for parameters and a pipe, what computes a batch's outputs from its inputs.
        inputs: Names of inputs.
        required: Number of inputs that must be given.
        parameters: Defaults of its own parameters.
        outputs: Number of outputs.
        is_cpp_only: Whether its variant for the CPU exists in C++ only.
    """

    name: str
    kinds: Mapping[str, Kind]
    make: Callable[[dict[str, Any], Pipe], Callable[..., Any]]
    inputs: tuple[str, ...] = ()
    required: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    is_cpp_only: bool = False


@dataclass(eq=False)
class Node:
    """Operator of a graph with its parameters and inputs."""

    operator: Operator
    device: str
    parameters: dict[str, Any]
    inputs: dict[str, TensorNode]

    @property
    def kind(self) -> Kind:
        """Part of the pipe."""
        return self.operator.kinds[self.device]


@dataclass(frozen=True, eq=False)
class TensorNode:
    """Output of a node, the symbolic tensor that `definegraph` handles."""

    node: Node
    index: int = 0
    is_copied: bool = False

    @property
    def is_on_hpu(self) -> bool:
        """Whether the tensor is on the card."""
        return self.is_copied or self.node.kind in {"decoder", "hpu"}

    def as_hpu(self) -> TensorNode:
        """Return the tensor, copied to the card.

        Raises:
            ValueError: It is on the card already.
        """
        if self.is_on_hpu:
            raise ValueError(f"`as_hpu` must be called on a tensor of the CPU, not of {self.node.operator.name}")
        return TensorNode(self.node, self.index, is_copied=True)
