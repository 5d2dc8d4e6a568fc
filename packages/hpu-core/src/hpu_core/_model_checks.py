"""Checks of a model for what a card cannot hold, before it is moved there."""

from collections.abc import Iterable

from torch import nn

from hpu_core._lightning import MisconfigurationException

# Callbacks of Lightning that read or replace whole parameters; a subclass is one as well.
_NEED_WHOLE_PARAMETERS = frozenset({"ModelPruning", "StochasticWeightAveraging", "WeightAveraging"})


def check_model(model: nn.Module, *, trains: bool = True) -> None:
    """Check a model for complex tensors, and for embeddings with sparse gradients if it trains.

    Raises:
        ValueError: It has one; the message names it and says what to write instead.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_complex():
            kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            raise ValueError(
                f"{kind} {name!r} must be real on hpu, got {tensor.dtype}: a card has no complex types; keep its real "
                f"and imaginary parts, `torch.view_as_real({name.rpartition('.')[2]})`, for rotary embeddings cos and "
                "sin, and multiply them by hand"
            )
    if not trains:
        return
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse and module.weight.requires_grad:
            raise ValueError(
                f"module {name!r} must not have `sparse=True` on hpu, got {type(module).__name__} with it: a card has "
                "no sparse gradients, and HCCL cannot reduce them; leave it out, and use `Adam` instead of `SparseAdam`"
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
