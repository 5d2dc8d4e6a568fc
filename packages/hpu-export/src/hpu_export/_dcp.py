"""Folders of torch.distributed.checkpoint, as FSDP and ModelParallel save them with any number of ranks."""

import functools
import itertools
import logging
import pickle
import posixpath
from collections.abc import Iterator
from typing import Any, Final, cast

import torch
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from hpu_export import _torch
from hpu_export._lazy_tensor import Checkpoint, LazyTensor, get_run_info
from hpu_export._torch_file import choose_key

_METADATA: Final = ".metadata"
_SUFFIX: Final = ".distcp"
# Lightning's file with everything but weights and optimizer states.
_META: Final = "meta.pt"

_log = logging.getLogger(__name__)


def is_part(name: str) -> bool:
    """Return whether a file of this name belongs to such a folder."""
    return name == _METADATA or name.endswith(_SUFFIX)


def open_folder(fs: AbstractFileSystem, path: str, *, key: str | None, weights_only: bool) -> Checkpoint:
    """Return the checkpoint in a folder.

    Args:
        fs: The file system.
        path: The folder.
        key: Key of the weights; by default the only one that is no optimizer's.
        weights_only: As in `torch.load`, for Lightning's file beside the shards.

    Raises:
        pickle.UnpicklingError: The metadata has objects other than descriptions of tensors.
        ValueError: Files are missing, cut off or of another checkpoint.
    """
    try:
        with fs.open(posixpath.join(path, _METADATA), "rb") as file:
            metadata = _torch.load_metadata(file)
    except FileNotFoundError as error:
        raise ValueError(
            f"the folder must have {_METADATA!r}, got {path!r} without it: the save did not finish"
        ) from error
    except (EOFError, pickle.UnpicklingError, AttributeError, IndexError) as error:
        raise ValueError(f"{_METADATA!r} must describe the shards, got a damaged one in {path!r}: {error}") from error
    _check_files(fs, path, metadata)
    paths = {name: _path_of(metadata, name) for name in metadata.state_dict_metadata}
    optimizers = {parts[0] for parts in paths.values() if len(parts) > 1 and parts[1] in {"state", "param_groups"}}
    found = {
        name
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata) and paths[name][0] not in optimizers
    }
    groups = sorted({paths[name][0] for name in found if len(paths[name]) > 1})
    # A state dict that was saved without a key: the names are the paths.
    prefix: str | None = None
    if groups:
        prefix = choose_key(key, groups, path) if key or "state_dict" not in groups else "state_dict"
    shards = _Shards(fs, path, metadata)
    weights = {
        ".".join(paths[name][1:]) if prefix else name: shards.tensor(name)
        for name in metadata.state_dict_metadata
        if name in found and (prefix is None or (len(paths[name]) > 1 and paths[name][0] == prefix))
    }
    return Checkpoint(weights, _run_info(fs, path, weights_only=weights_only))


def _path_of(metadata: Metadata, name: str) -> tuple[str, ...]:
    """Return the keys that lead to an entry of the state that was saved."""
    path = (metadata.planner_data or {}).get(name)
    if path is None:
        return tuple(name.split(".", 1))
    return tuple(map(str, path))


def _check_files(fs: AbstractFileSystem, path: str, metadata: Metadata) -> None:
    """Raise an error unless the folder has all that the metadata describes, and no other shards.

    Raises:
        ValueError: Shards are missing, cut off or of another checkpoint.
    """
    sizes = {posixpath.basename(entry["name"]): entry["size"] for entry in fs.ls(path, detail=True)}
    ends: dict[str, int] = {}
    for item in metadata.storage_data.values():
        if getattr(item, "transform_descriptors", None):
            raise ValueError(f"shards must be saved without extensions, got {item.transform_descriptors} in {path!r}")
        ends[item.relative_path] = max(ends.get(item.relative_path, 0), item.offset + item.length)
    if missing := sorted(ends.keys() - sizes.keys()):
        raise ValueError(f"the folder must have the shards of all ranks, got {path!r} without {', '.join(missing)}")
    for name, end in ends.items():
        if sizes[name] < end:
            raise ValueError(
                f"{name!r} must have at least {end:,} bytes, got {sizes[name]:,} in {path!r}: it is cut off"
            )
    if others := sorted(name for name in sizes.keys() - ends.keys() if name.endswith(_SUFFIX)):
        raise ValueError(
            f"the folder must have one checkpoint, got {path!r} with {', '.join(others)}, which its {_METADATA!r} does "
            "not name: they are of another save with more ranks"
        )


def _run_info(fs: AbstractFileSystem, path: str, *, weights_only: bool) -> dict[str, Any]:
    try:
        with fs.open(posixpath.join(path, _META), "rb") as file:
            return get_run_info(torch.load(file, map_location="cpu", weights_only=weights_only))
    except FileNotFoundError:
        # Fabric's, and those of other programs.
        return {}
    except pickle.UnpicklingError:
        _log.warning("%s has objects that weights_only refuses: the model card has nothing of it", _META)
        return {}


class _Shards:
    """Tensors in the shards of a folder."""

    def __init__(self, fs: AbstractFileSystem, path: str, metadata: Metadata) -> None:
        self._fs = fs
        self._path = path
        self._metadata = metadata

    def tensor(self, name: str) -> LazyTensor:
        """Return a tensor, which is read chunk by chunk."""
        entry = cast("TensorStorageMetadata", self._metadata.state_dict_metadata[name])
        return LazyTensor(tuple(entry.size), entry.properties.dtype, functools.partial(self._blocks, name, entry))

    def _blocks(self, name: str, entry: TensorStorageMetadata) -> Iterator[torch.Tensor]:
        """Yield bands of rows that no chunk begins or ends in, each with all columns."""
        size, dtype, chunks = entry.size, entry.properties.dtype, entry.chunks
        if not size.numel():
            yield torch.empty(size, dtype=dtype)
            return
        if not size:
            yield self._load(name, chunks[0])
            return
        bounds = {chunk.offsets[0] for chunk in chunks} | {chunk.offsets[0] + chunk.sizes[0] for chunk in chunks}
        for start, stop in itertools.pairwise(sorted(bounds)):
            parts = [c for c in chunks if c.offsets[0] < stop and start < c.offsets[0] + c.sizes[0]]
            if len(parts) == 1 and parts[0].sizes[1:] == size[1:]:
                # Sharded along its rows, as FSDP does: without a copy.
                yield self._load(name, parts[0])[start - parts[0].offsets[0] : stop - parts[0].offsets[0]]
                continue
            band = torch.empty((stop - start, *size[1:]), dtype=dtype)
            filled = 0
            for part in parts:
                columns = [slice(o, o + s) for o, s in zip(part.offsets[1:], part.sizes[1:], strict=True)]
                place = (slice(None), *columns)
                band[place] = self._load(name, part)[start - part.offsets[0] : stop - part.offsets[0]]
                filled += band[place].numel()
            if filled != band.numel():
                raise ValueError(f"the shards must have all of {name!r}, got {filled:,} of {band.numel():,} elements")
            yield band

    def _load(self, name: str, chunk: ChunkStorageMetadata) -> torch.Tensor:
        item = self._metadata.storage_data[MetadataIndex(name, chunk.offsets)]
        try:
            with self._fs.open(posixpath.join(self._path, item.relative_path), "rb", **self._buffering) as file:
                loaded = _torch.load_tensor(file, item.offset, item.length)
            return loaded.reshape(chunk.sizes)
        except (
            AttributeError,
            EOFError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
            pickle.UnpicklingError,
        ) as error:
            raise ValueError(
                f"{item.relative_path!r} must have {name!r} as its {_METADATA!r} says, got other content in "
                f"{self._path!r}"
            ) from error

    @functools.cached_property
    def _buffering(self) -> dict[str, Any]:
        # Local files need no read-ahead.
        return {} if isinstance(self._fs, LocalFileSystem) else {"block_size": 64 * 2**20}
