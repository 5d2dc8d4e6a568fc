"""Iterators of media pipes for PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from habana_frameworks.torch import hpu
from hpu_sim.device.features import features

if TYPE_CHECKING:
    import numpy as np

    from habana_frameworks.mediapipe.mediapipe import MediaPipe

__all__ = [
    "CPUResnetPytorchIterator",
    "HPUGenericPytorchIterator",
    "HPUResnetPytorchIterator",
    "HPUSsdPytorchIterator",
    "HPUUnet3DPytorchIterator",
    "HPUUnetPytorchIterator",
]

# torch has no unsigned types of 16 bits and more on a card; other types raise a KeyError.
_DTYPES: Final = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "uint16": torch.int16,
    "int32": torch.int32,
    "uint32": torch.int32,
    "int64": torch.int64,
    "uint64": torch.int64,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
_FRAMEWORK: Final = "PYT_FW"


class _TorchProxy:
    """Allocator of outputs as tensors of torch."""

    @staticmethod
    def new_tensor(array: np.ndarray[Any, Any], name: str, *, is_on_hpu: bool) -> torch.Tensor:
        """Return a tensor of an output."""
        dtype = _DTYPES[name]
        # torch 2.0 to 2.2 cannot make tensors of unsigned arrays.
        host = torch.from_numpy(array.view(name[1:]) if name in {"uint16", "uint32", "uint64"} else array)
        if not is_on_hpu:
            return host.to(dtype)
        # On a card the media engine writes them. Here they are copied, by a kind of copy that holds nothing up.
        return host.pin_memory().to("hpu", dtype, non_blocking=True)


class HPUGenericPytorchIterator:
    """Iterator of batches as lists of tensors. It acquires a card and builds the pipe."""

    def __init__(self, mediapipe: MediaPipe) -> None:
        hpu.init()
        self.pipe = mediapipe
        self.pipe.set_proxy(_FRAMEWORK, _TorchProxy())
        self.pipe.build()

    def __len__(self) -> int:
        """Return the number of batches."""
        return int(self.pipe.get_batch_count())

    def __iter__(self) -> HPUGenericPytorchIterator:
        """Begin an epoch."""
        self.pipe.iter_init()
        return self

    def __next__(self) -> Any:
        """Return a batch."""
        return self.pipe.run()


class HPUResnetPytorchIterator(HPUGenericPytorchIterator):
    """Iterator of images and labels, the latter as int64."""

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a batch."""
        images, labels = super().__next__()
        return images, labels.long()


class CPUResnetPytorchIterator(HPUResnetPytorchIterator):
    """The same for a pipe of the CPU."""


if features().mixed_resnet_iterator:

    class CPUHPUResnetPytorchIterator(HPUResnetPytorchIterator):
        """The same for a mixed pipe."""

    __all__ += ["CPUHPUResnetPytorchIterator"]


class _NotSimulated:
    """Iterator that the simulator lacks.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, mediapipe: object) -> None:
        raise NotImplementedError(
            f"hpu-sim simulates the media pipes of ImageNet, and not {type(self).__name__} ({type(mediapipe).__name__})"
        )


class HPUSsdPytorchIterator(_NotSimulated):
    """Iterator of COCO's pipes."""


class HPUUnetPytorchIterator(_NotSimulated):
    """Iterator of U-Net's pipes."""


class HPUUnet3DPytorchIterator(_NotSimulated):
    """Iterator of 3D U-Net's pipes."""
