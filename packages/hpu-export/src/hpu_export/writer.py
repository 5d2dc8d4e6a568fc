"""Safetensors files that are written tensor by tensor.

`safetensors.torch.save_file` needs all tensors of a file in memory. The format is a header and the tensors' bytes one
after the other, so this module writes it, and safetensors checks each file.
"""

import ctypes
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open

from hpu_export._lazy_tensor import LazyTensor
from hpu_export._safetensors import DTYPES, INDEX

__all__ = ["parse_size", "plan_files", "write_file", "write_index"]

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
# Elements that are cast and written at once.
_PIECE: Final = 2**24
_UNITS: Final = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """Return the bytes of a size, such as 5GB.

    Raises:
        ValueError: It is no size.
    """
    found = re.fullmatch(r"(\d+)\s*([KMG]I?B)?", text.strip().upper())
    size = int(found[1]) * _UNITS[found[2] or ""] if found else 0
    if not size:
        raise ValueError(f"`max_shard_size` must be a number and a unit, such as 5GB, got {text!r}")
    return size


def plan_files(weights: Mapping[str, LazyTensor], max_bytes: int, stem: str = "model") -> dict[str, list[str]]:
    """Return the names of the weights by file, as Hugging Face names files: each as large as allowed, in order."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, weight in weights.items():
        if groups[-1] and size + weight.nbytes > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += weight.nbytes
    if len(groups) == 1:
        return {f"{stem}.safetensors": groups[0]}
    return {f"{stem}-{i:05}-of-{len(groups):05}.safetensors": group for i, group in enumerate(groups, start=1)}


def write_file(
    path: Path, weights: Mapping[str, LazyTensor], metadata: Mapping[str, str], progress: Callable[[int], object]
) -> None:
    """Write a file.

    Args:
        path: The file.
        weights: Tensors by name.
        metadata: Texts for the file's header.
        progress: Function that is called with the number of bytes that were written.

    Raises:
        TypeError: safetensors has no such dtype.
        ValueError: A tensor has another number of elements than its shape.
        OSError: Writing failed.
    """
    # The order of safetensors: aligned without padding.
    ordered = sorted(weights.items(), key=lambda item: -item[1].itemsize)
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, weight in ordered:
        if weight.dtype not in _NAMES:
            raise TypeError(f"weights must have a dtype of safetensors, got {name!r} with {weight.dtype}: use `dtype`")
        offsets = [offset, offset := offset + weight.nbytes]
        header[name] = {"dtype": _NAMES[weight.dtype], "shape": list(weight.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, weight in ordered:
            written = 0
            for block in weight.blocks():
                for piece in block.detach().reshape(-1).split(_PIECE):
                    data = piece.to(weight.dtype).contiguous()
                    size = file.write(_memory(data))
                    written += size
                    progress(size)
            if written != weight.nbytes:
                raise ValueError(
                    f"{name!r} must have {weight.nbytes:,} bytes, got {written:,}: the checkpoint is damaged"
                )
    with safe_open(path, framework="pt") as content:
        content.keys()


def write_index(folder: Path, files: Mapping[str, list[str]], total: int) -> None:
    """Write the index of the files, if there are several."""
    if len(files) > 1:
        weight_map = {name: file for file, names in files.items() for name in names}
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor without a copy, of dtypes that NumPy does not have, too."""
    # torch 2.0 has no `tensor.nbytes`.
    return memoryview((ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr()))
