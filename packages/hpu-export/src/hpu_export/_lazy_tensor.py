"""Tensors of a checkpoint that are read when they are written, and the checkpoint that has them."""

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

# "vocab_tokens" is a number of a model, "hub_token" is not.
_SECRET: Final = re.compile(r"(token|password|passwd|secret|credentials?|api_?key)$", re.IGNORECASE)


@dataclass(frozen=True)
class LazyTensor:
    """Tensor that is not in memory.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        blocks: Function that reads it as CPU tensors of any shape and dtype, whose elements follow each other in
            row-major order.
        tie_key: Key that the names of one tensor share, such as tied weights; None if that is unknown.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    blocks: Callable[[], Iterable[torch.Tensor]]
    tie_key: Hashable | None = None

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> "LazyTensor":
        """Return the view of a tensor whose memory is a file that is mapped, or that exists anyway."""
        key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
        # Empty tensors have no address.
        return cls(tuple(tensor.shape), tensor.dtype, lambda: [tensor], key if tensor.numel() else None)

    def read(self) -> torch.Tensor:
        """Return the whole tensor."""
        blocks = list(self.blocks())
        # Without a copy, as most tensors are one block.
        flat = blocks[0] if len(blocks) == 1 else torch.cat([block.reshape(-1) for block in blocks])
        return flat.reshape(self.shape).to(self.dtype)

    def cast(self, dtype: torch.dtype | None) -> "LazyTensor":
        """Return the tensor in another dtype if it is a floating-point one and `dtype` is not None."""
        if dtype is None or dtype is self.dtype or not self.dtype.is_floating_point:
            return self
        return dataclasses.replace(self, dtype=dtype)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return torch.Size(self.shape).numel() * self.itemsize

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes; torch 2.0 has no `dtype.itemsize`."""
        return torch.empty(0, dtype=self.dtype).element_size()


@dataclass(frozen=True)
class Checkpoint:
    """Weights of a checkpoint and what it says of its run.

    Attributes:
        weights: Tensors by their names in the checkpoint.
        run_info: Epoch, step, version and hyperparameters that are numbers, as far as the checkpoint has them.
    """

    weights: dict[str, LazyTensor]
    run_info: dict[str, Any]


def get_run_info(content: dict[str, Any]) -> dict[str, Any]:
    """Return what a Lightning checkpoint says of its run, for a card that is published with the weights.

    Hyperparameters are numbers and booleans only: texts can be tokens, paths and names of users.
    """
    known = ("epoch", "global_step", "pytorch-lightning_version")
    run_info: dict[str, Any] = {name: content[name] for name in known if name in content}
    parameters = content.get("hyper_parameters")
    if isinstance(parameters, dict):
        run_info |= {
            str(name): value
            for name, value in parameters.items()
            if isinstance(value, (bool, int, float)) and str(name) not in run_info and not _SECRET.search(str(name))
        }
    return run_info
