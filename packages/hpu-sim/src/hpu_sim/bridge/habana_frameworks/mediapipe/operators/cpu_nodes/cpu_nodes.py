"""Base class of a function that a program adds to a pipe."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any

from hpu_sim.device.features import features

__all__ = ["media_function"]


class media_function(ABC):  # noqa: N801 - the vendor's name
    """Function of the program's own, which is called for each batch."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params

    @abstractmethod
    def __call__(self, *args: Any) -> Any:
        """Return the output of a batch."""


def check_user_classes() -> None:
    """Raise the error of the known bridge, of 1.17, for classes of the program's own on Python 3.11 and newer."""
    if sys.version_info >= (3, 11) and features().media_uses_getargspec:
        raise AttributeError("module 'inspect' has no attribute 'getargspec'")
