"""Context parallelism: several ranks share each sequence, and inside of attention its heads (Ulysses).

A rank holds a part of every sequence of its batch. Before attention, an all-to-all exchanges parts of the sequence for
parts of the heads, and after it the other way round, so each head is computed once, from the whole sequence.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.functional import pad

__all__ = ["ContextParallel", "UlyssesAttention"]

# Label of a token without loss, as in transformers.
IGNORED: Final = -100


class ContextParallel:
    """Ranks that share each sequence, `strategy.context_parallel`.

    Attributes:
        size: Number of these ranks; 1 without context parallelism.
        rank: Index of this rank among them, and of its part of a sequence.
        group: Their process group; None with one rank.
    """

    def __init__(self, size: int = 1, rank: int = 0, group: Any = None) -> None:
        self.size = size
        self.rank = rank
        self.group = group
        self._is_checked = size == 1

    @classmethod
    def create(cls, size: int) -> "ContextParallel":
        """Create the groups of all ranks, `size` neighbours each, and return this rank's."""
        if size == 1:
            return cls()
        # Every rank creates every group, as torch requires.
        group, _ = dist.new_subgroups(size)
        return cls(size, dist.get_rank() % size, group)

    def split(self, tensor: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """Return this rank's part of a tensor along its sequence dimension.

        Raises:
            ValueError: The dimension is not divisible by the number of ranks.
        """
        if tensor.shape[dim] % self.size:
            raise ValueError(
                f"the length of a sequence must be a multiple of `context_parallel_size` ({self.size}), got "
                f"{tensor.shape[dim]}: pad it, in transformers' collators with `pad_to_multiple_of={self.size}`"
            )
        return tensor.chunk(self.size, dim)[self.rank]

    def shard(self, batch: Any) -> Any:
        """Return this rank's part of a batch of text.

        Args:
            batch: Mapping with "input_ids", (batch, length), the same on all ranks that share it; also "labels", which
                are not shifted, "attention_mask", (batch, length), and others, of which those with this length are
                split.

        Returns:
            dict with the part, and "position_ids", (batch, part). With labels also "shift_labels", (batch, part), the
            label of each token's successor, which "labels" equals, and "num_items_in_batch": by it, a sum of losses is
            divided so that gradients averaged over all ranks are those of whole sequences. transformers' models take
            both. The attention mask stays whole, (batch, length), and is left out if it masks nothing.

        Raises:
            TypeError: The batch is no such mapping.
            ValueError: A sequence cannot be divided, several are packed into one, or ranks have different batches.
        """
        if self.size == 1:
            return batch
        ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
        if not isinstance(ids, torch.Tensor) or ids.ndim != 2:  # noqa: PLR2004 - batch and length.
            raise TypeError(
                "a batch must be a mapping with 'input_ids' of shape (batch, length) with context parallelism, got "
                f"{type(batch).__name__}: return a dict from the data loader's `collate_fn`"
            )
        self._check_equal(ids)
        length = ids.shape[1]
        positions = batch.get("position_ids")
        if positions is not None and bool((positions.diff(dim=1) != 1).any()):
            raise ValueError("'position_ids' must count by one with context parallelism: pass one sequence per row")
        result = {
            key: self.split(value) if isinstance(value, torch.Tensor) and value.shape[1:2] == (length,) else value
            for key, value in batch.items()
        }
        if positions is None:
            positions = torch.arange(length, device=ids.device).expand(ids.shape)
            result["position_ids"] = self.split(positions)
        mask = result.pop("attention_mask", None)
        if mask is not None and not bool(batch["attention_mask"].all()):
            result["attention_mask"] = batch["attention_mask"]
        if batch.get("labels") is not None:
            shifted = pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
            result["labels"] = result["shift_labels"] = self.split(shifted).contiguous()
            result["num_items_in_batch"] = (shifted != IGNORED).sum().clamp(min=1) / self.size
        return result

    def _check_equal(self, ids: torch.Tensor) -> None:
        """Raise an error if ranks that share a batch have different ones; checks the first batch only."""
        if self._is_checked:
            return
        self._is_checked = True
        weights = torch.arange(1, ids.numel() + 1).view(ids.shape)
        total = (ids.cpu() * weights).sum().float()
        bounds = torch.stack([total, -total]).to("hpu")
        dist.all_reduce(bounds, op=dist.ReduceOp.MAX, group=self.group)
        if bounds[0] != -bounds[1]:
            raise ValueError(
                f"the {self.size} ranks that share a sequence must have the same batch: leave the sampler to the "
                "Trainer or to Fabric, or pass `strategy.distributed_sampler_kwargs` to your own, and draw no random "
                "numbers that differ between ranks"
            )


class UlyssesAttention(torch.nn.Module):
    """Attention over sequences that ranks share; without context parallelism the attention itself.

    Args:
        attention: Function of query, key and value, (batch, heads, length, head size), and further arguments, with the
            result of the query's shape, such as the bridge's `FusedSDPA.apply`; None for torch's
            `scaled_dot_product_attention`, or what has taken its place, such as hpu-kernels' function. It gets whole
            sequences and a part of the heads, so a mask has the whole length, and must be the same for all heads.
    """

    def __init__(self, attention: Callable[..., torch.Tensor] | None = None) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Return the attention of this rank's part of the sequences.

        Args:
            query: (batch, heads, part, head size).
            key: (batch, key heads, part, head size). Fewer heads than ranks are repeated.
            value: Of the same shape.
            *args: Further arguments of the attention.
            **kwargs: As `args`.

        Raises:
            ValueError: The heads of the query are not divisible by the ranks.
        """
        attention: Callable[..., torch.Tensor] = self.attention or functional.scaled_dot_product_attention
        parallel = active()
        if parallel.size == 1:
            return attention(query, key, value, *args, **kwargs)
        query, key, value = exchange(parallel, query, key, value)
        return gather_heads(parallel, attention(query, key, value, *args, **kwargs))


def exchange(parallel: ContextParallel, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return query, key and value, (batch, heads, part, head size), with whole sequences and a part of the heads.

    Raises:
        ValueError: The heads of the query are not divisible by the ranks.
    """
    heads = tensors[0].shape[1]
    if heads % parallel.size:
        raise ValueError(
            f"the number of heads must be a multiple of `context_parallel_size` ({parallel.size}), got {heads}"
        )
    return [_scatter_heads(parallel, tensor) for tensor in tensors]


def _scatter_heads(parallel: ContextParallel, tensor: torch.Tensor) -> torch.Tensor:
    # Key heads of which ranks get no whole number are repeated: those of a rank's query heads stay together.
    tensor = tensor.repeat_interleave(math.lcm(tensor.shape[1], parallel.size) // tensor.shape[1], dim=1)
    batch, heads, part, size = tensor.shape
    by_rank = tensor.reshape(batch, parallel.size, heads // parallel.size, part, size).transpose(0, 1)
    # Received from each rank: its part of the sequence, of this rank's heads.
    received: torch.Tensor = _AllToAll.apply(by_rank, parallel.group)  # type: ignore[no-untyped-call] # torch's.
    return received.permute(1, 2, 0, 3, 4).reshape(batch, heads // parallel.size, parallel.size * part, size)


def gather_heads(parallel: ContextParallel, tensor: torch.Tensor) -> torch.Tensor:
    """Return a part of the sequences with all heads, of whole sequences with a part of the heads."""
    batch, heads, length, size = tensor.shape
    part = length // parallel.size
    by_rank = tensor.reshape(batch, heads, parallel.size, part, size).permute(2, 0, 1, 3, 4)
    received: torch.Tensor = _AllToAll.apply(by_rank, parallel.group)  # type: ignore[no-untyped-call] # torch's.
    return received.transpose(0, 1).reshape(batch, parallel.size * heads, part, size)


class _AllToAll(torch.autograd.Function):
    """Exchange of equal parts along the first dimension, one for each rank."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        tensor = tensor.contiguous()
        received = torch.empty_like(tensor)
        dist.all_to_all_single(received, tensor, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _AllToAll.apply(gradients[0], ctx.group), None  # type: ignore[no-untyped-call] # torch's.


class _State:
    """State of this process."""

    active = ContextParallel()


def active() -> ContextParallel:
    """Return the ranks with which attention of this process shares sequences."""
    return _State.active


def activate(parallel: ContextParallel) -> None:
    """Set the ranks with which attention of this process shares sequences."""
    _State.active = parallel
