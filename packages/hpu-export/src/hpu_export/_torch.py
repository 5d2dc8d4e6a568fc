"""Private names and file formats of torch that this package builds on; tests/test_torch.py checks each."""

import contextlib
import inspect
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

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

# Of DeepSpeed's checkpoints, with what stands for each, so that they load without DeepSpeed and run none of its code.
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


class _SavedTensor(NamedTuple):
    """Tensor in a file of `torch.save`: which elements of which storage it has.

    Attributes:
        storage: Name of its storage.
        dtype: Its dtype.
        offset: Its first element in the storage.
        shape: Its shape.
        stride: Elements between neighbours of each dimension.
    """

    storage: str
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _TensorUnpickler(pickle.Unpickler):
    """Unpickler of where a tensor is, which reads none of it."""

    def persistent_load(self, pid: Any) -> tuple[str, Any]:
        _, kind, name, *_ = pid
        return name, kind

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch._utils" and name in {"_rebuild_tensor_v2", "_rebuild_tensor_v3"}:
            return _describe
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        found = getattr(torch, name, None) if module in {"torch", "torch.storage"} else None
        if isinstance(found, torch.dtype) or (isinstance(found, type) and name.endswith("Storage")):
            return found
        raise pickle.UnpicklingError(f"a shard must have dense tensors, got '{module}.{name}'")


def _describe(storage: tuple[str, Any], offset: int, shape: Any, stride: Any, *others: Any) -> _SavedTensor:
    """Return what torch's functions of the same arguments make a tensor of."""
    _, _, *rest = others
    # dtypes that have no class of storages follow; so do the bits of a conjugated or negated tensor.
    dtype = next((each for each in rest if isinstance(each, torch.dtype)), None)
    if any(rest[1 if dtype else 0 :]):
        raise pickle.UnpicklingError(f"a shard must have plain tensors, got one with {rest}")
    # Its public name warns that storages with a dtype are deprecated.
    return _SavedTensor(storage[0], dtype or storage[1]._dtype, offset, tuple(shape), tuple(stride))  # noqa: SLF001


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


def load_rows(file: IO[bytes], offset: int, length: int, shape: tuple[int, ...], rows: tuple[int, int]) -> torch.Tensor:
    """Return rows of a tensor that torch has saved at a position of a shard, without reading the others.

    Args:
        file: The shard.
        offset: Where the tensor's part of it begins, in bytes.
        length: Bytes of that part.
        shape: Shape of the tensor.
        rows: First row, and the row after the last one. A scalar has one row.

    Raises:
        EOFError, pickle.UnpicklingError, ValueError, LookupError, zipfile.BadZipFile: There is no such tensor.
    """
    part = io.BufferedReader(_Part(file, offset, length))
    with zipfile.ZipFile(part) as archive:
        description = next((name for name in archive.namelist() if name.endswith("/data.pkl")), "")
        with archive.open(description) as content:
            saved = _TensorUnpickler(content).load()
        if not isinstance(saved, _SavedTensor) or saved.shape != shape:
            raise ValueError(f"a shard must have a tensor of {shape}, got {saved}")
        record = archive.getinfo(f"{description.removesuffix('.pkl')}/{saved.storage}")
    # The names of the record are as long as the header before its bytes says, which the directory does not.
    part.seek(record.header_offset)
    header = part.read(30)
    begin = record.header_offset + 30 + sum(int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    shape = (rows[1] - rows[0], *shape[1:]) if shape else shape
    count = 1 + sum((size - 1) * stride for size, stride in zip(shape, saved.stride, strict=True))
    first = saved.offset + (rows[0] * saved.stride[0] if shape else 0)
    itemsize = torch.empty(0, dtype=saved.dtype).element_size()
    if record.compress_type != zipfile.ZIP_STORED or (first + count) * itemsize > record.file_size:
        raise ValueError(f"a shard must have all elements, got {record.file_size:,} bytes")
    data = bytearray(count * itemsize)
    part.seek(begin + first * itemsize)
    if part.readinto(data) != len(data):
        raise EOFError
    return torch.frombuffer(data, dtype=saved.dtype).as_strided(shape, saved.stride)


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
