"""Error of what the card cannot decode."""

__all__ = ["CardDecodeError"]


class CardDecodeError(RuntimeError):
    """The card cannot decode a data set with torchvision's meaning; the message has the reason."""
