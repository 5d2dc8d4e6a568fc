"""Private names and file formats of torch that this package builds on; tests/test_torch.py checks each."""

import contextlib
import inspect
import io
import pickle
import zipfile
from pathlib import Path
from typing import IO, Any, Final, cast

import torch
from packaging.version import Version
from torch.distributed.checkpoint.metadata import Metadata

# Older torch accepts classes, but none in place of another.
_HAS_NAMED_GLOBALS: Final = Version(torch.__version__) >= Version("2.7.dev0")

# torch 2.0 reads the whole file.
_CAN_MAP: Final = "mmap" in inspect.signature(torch.load).parameters

# What the metadata of a sharded checkpoint consists of. Its format is a pickle, and torch unpickles anything in it.
_METADATA_GLOBALS: Final = {
    "collections": {"OrderedDict"},
    # The folder that the checkpoint was saved to.
    "pathlib": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed._shard.sharded_tensor.metadata": {"MEM_FORMAT_ENCODING", "TensorProperties"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}

# DeepSpeed's classes in its checkpoints. Empty classes replace them, so no code of DeepSpeed runs.
_DEEPSPEED_MODULES: Final = {
    "deepspeed.runtime.fp16.loss_scaler": ("DynamicLossScaler", "LossScaler", "LossScalerBase"),
    "deepspeed.utils.tensor_fragment": ("fragment_address",),
}


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickler of nothing but a sharded checkpoint's metadata."""

    def find_class(self, module: str, name: str) -> Any:
        # dtypes are globals of torch.
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and name not in _METADATA_GLOBALS.get(module, ()):
            raise pickle.UnpicklingError(f"the metadata must describe tensors only, got '{module}.{name}'")
        return super().find_class(module, name)


class _Part(io.RawIOBase):
    """Part of a file, for readers that seek from its end."""

    def __init__(self, file: Any, offset: int, length: int) -> None:
        self._file = file
        self._offset = offset
        self._length = length
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._length)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._offset + self._position)
        count: int = self._file.readinto(memoryview(buffer)[: max(0, self._length - self._position)])
        self._position += count
        return count


class _Ignored:
    """Stands for an object of DeepSpeed that no weight depends on."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


def load_metadata(file: IO[bytes]) -> Metadata:
    """Return the metadata of a sharded checkpoint, `.metadata`.

    Raises:
        pickle.UnpicklingError: It has other objects.
    """
    return cast("Metadata", _MetadataUnpickler(file).load())


def load_tensor(file: IO[bytes], offset: int, length: int) -> torch.Tensor:
    """Return a tensor that torch has saved at a position of a shard.

    Args:
        file: The shard.
        offset: Where the tensor's part of it begins, in bytes.
        length: Bytes of that part.

    Raises:
        EOFError, pickle.UnpicklingError, RuntimeError, ValueError: There is no dense tensor.
    """
    part = io.BufferedReader(_Part(file, offset, length))
    loaded = torch.load(part, map_location="cpu", weights_only=True)
    if not isinstance(loaded, torch.Tensor) or loaded.layout is not torch.strided:
        raise ValueError(f"a shard must have dense tensors, got {type(loaded).__name__}")
    return loaded


def load_file(path: Path, *, weights_only: bool) -> Any:
    """Return the content of a file that `torch.save` has written, with tensors that are read when they are used."""
    # Files of torch before 1.6 are no zip archives, and are read whole.
    options = {"mmap": True} if _CAN_MAP and zipfile.is_zipfile(path) else {}
    return torch.load(path, map_location="cpu", weights_only=weights_only, **options)


def allow_deepspeed() -> Any:
    """Return a context in which `weights_only` accepts the objects of DeepSpeed's checkpoints, without DeepSpeed."""
    stubs: list[Any] = [
        (_Ignored, f"{module}.{name}") for module, names in _DEEPSPEED_MODULES.items() for name in names
    ]
    # An enum of numbers.
    stubs.append((int, "deepspeed.runtime.zero.config.ZeroStageEnum"))
    if not _HAS_NAMED_GLOBALS:
        return contextlib.nullcontext()
    return torch.serialization.safe_globals(stubs)
