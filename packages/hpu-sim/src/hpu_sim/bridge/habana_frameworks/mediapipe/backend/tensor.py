"""Tensors that a pipe without a framework returns."""

from __future__ import annotations

from typing import Any

__all__ = ["CPUTensor", "HPUTensor"]


class CPUTensor:
    """Tensor on the host."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def as_nparray(self) -> Any:
        """Return the NumPy array."""
        return self._array


class HPUTensor:
    """Tensor on the card."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def as_cpu(self) -> CPUTensor:
        """Return a copy on the host."""
        return CPUTensor(self._array.copy())
