"""Safetensors files, alone or sharded in a folder: the output of another export, or a base model."""

import functools
import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from hpu_export._lazy_tensor import Checkpoint, LazyTensor

SUFFIX: Final = ".safetensors"
INDEX: Final = "model.safetensors.index.json"
# By the names of the format; older torch has some of them only.
DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, dtype)
    for name, dtype in (
        ("BOOL", "bool"),
        ("U8", "uint8"),
        ("I8", "int8"),
        ("I16", "int16"),
        ("I32", "int32"),
        ("I64", "int64"),
        ("F16", "float16"),
        ("BF16", "bfloat16"),
        ("F32", "float32"),
        ("F64", "float64"),
        ("C64", "complex64"),
        ("U16", "uint16"),
        ("U32", "uint32"),
        ("U64", "uint64"),
        ("F8_E4M3", "float8_e4m3fn"),
        ("F8_E5M2", "float8_e5m2"),
        ("F8_E8M0", "float8_e8m0fnu"),
    )
    if hasattr(torch, dtype)
}


def is_part(name: str) -> bool:
    """Return whether a file of this name belongs to such a folder."""
    return name.endswith(SUFFIX)


def open_files(path: Path) -> Checkpoint:
    """Return the checkpoint in a file or folder.

    Raises:
        ValueError: A file is damaged or missing.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
        if (path / INDEX).is_file():
            named = set(json.loads((path / INDEX).read_text())["weight_map"].values())
            if missing := sorted(named - {file.name for file in files}):
                raise ValueError(
                    f"the folder must have all files of {INDEX!r}, got {str(path)!r} without {missing[0]!r}"
                )
    weights: dict[str, LazyTensor] = {}
    for file in files:
        weights |= _open_file(file)
    return Checkpoint(weights, {})


def _open_file(file: Path) -> dict[str, LazyTensor]:
    weights: dict[str, LazyTensor] = {}
    try:
        with safe_open(file, framework="pt") as content:
            for name in content.keys():  # noqa: SIM118 - it is no dict.
                part = content.get_slice(name)
                read = functools.partial(_read, file, name)
                if part.get_dtype() not in DTYPES:
                    raise ValueError(
                        f"weights must have a dtype of torch {torch.__version__}, got {name!r} with {part.get_dtype()} "
                        f"in {str(file)!r}: leave it out with `ignore` (`--ignore`), or use a newer torch"
                    )
                weights[name] = LazyTensor(tuple(part.get_shape()), DTYPES[part.get_dtype()], read)
    except SafetensorError as error:
        raise ValueError(f"{str(file)!r} must be a whole file of safetensors, got one that is damaged") from error
    return weights


def _read(file: Path, name: str) -> list[Any]:
    with safe_open(file, framework="pt") as content:
        return [content.get_tensor(name)]
