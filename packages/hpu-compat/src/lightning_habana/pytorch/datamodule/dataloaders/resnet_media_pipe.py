"""Intel's media loader for Gaudi 2 and newer, without an implementation: importable, but creating an instance raises.

A program may import the name without using it, for example for `isinstance`. A missing name would break its import.
"""

from typing import Any

__all__ = ["MediaApiDataLoader"]


class MediaApiDataLoader:
    """Intel's media loader for Gaudi 2 and newer.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "MediaApiDataLoader is not supported: it decodes images with `habana_frameworks.mediapipe` of Intel's "
            "PyTorch image: use HPUDataModule, or a DataLoader"
        )
