"""CTC loss, and softmax with a choice of approximations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    import torch

__all__ = ["CTCLoss", "CustomSoftmax"]


class CTCLoss:
    """Connectionist temporal classification loss."""

    @staticmethod
    def apply(  # noqa: PLR0913, PLR0917 - the bridge's signature
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: torch.Tensor,
        target_lengths: torch.Tensor,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        """Return the loss.

        Args:
            log_probs: Logarithms of probabilities, of shape ``(time, batch, classes)``.
            targets: Classes of shape ``(batch, longest target)``.
            input_lengths: Length of each input.
            target_lengths: Length of each target.
            blank: Class of the blank.
            reduction: ``"none"``, ``"mean"`` or ``"sum"``.
            zero_infinity: Whether an infinite loss and its gradient are zero.
        """
        return functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


class CustomSoftmax:
    """Softmax over the last dimension."""

    @staticmethod
    def apply(input: torch.Tensor, flavor: int) -> torch.Tensor:  # noqa: A002 - the bridge's name
        """Return the softmax.

        Args:
            input: Logits.
            flavor: Approximation that a card uses; ignored.
        """
        del flavor
        return input.softmax(-1)
