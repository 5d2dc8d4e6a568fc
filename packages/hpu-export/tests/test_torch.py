"""Private names and formats of torch that `_torch` depends on."""

import io
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import filesystem

from hpu_export import _torch


def test_torch_has_the_private_names() -> None:
    fields = set(filesystem._StorageInfo.__dataclass_fields__)
    assert {"relative_path", "offset", "length"} <= fields


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(3, 4, 2).transpose(0, 1),
        torch.ones(4, 2, dtype=torch.bfloat16),
        torch.arange(8, dtype=torch.uint8).reshape(4, 2).view(getattr(torch, "float8_e4m3fn", torch.uint8)),
    ],
    ids=["transposed", "bfloat16", "float8"],
)
def test_a_saved_tensor_is_read_from_its_part_of_a_file(tensor: torch.Tensor) -> None:
    file = io.BytesIO()
    file.write(b"before")
    torch.save(tensor, file)
    length = file.tell() - 6
    file.write(b"behind")
    loaded = _torch.load_tensor(file, 6, length)
    assert loaded.dtype is tensor.dtype
    assert loaded.tolist() == tensor.tolist()


@pytest.mark.parametrize("content", [{"weight": torch.zeros(3, 2)}, torch.zeros(3, 2).to_sparse()])
def test_another_content_is_refused(content: Any) -> None:
    file = io.BytesIO()
    torch.save(content, file)
    with pytest.raises(ValueError, match="a shard must have dense tensors"):
        _torch.load_tensor(file, 0, file.tell())


def test_the_metadata_needs_no_other_globals() -> None:
    """Names that torch has moved would be refused."""
    for module, names in _torch._METADATA_GLOBALS.items():
        if module.startswith("torch.distributed.checkpoint"):
            assert all(hasattr(__import__(module, fromlist=["x"]), name) for name in names)
    assert hasattr(torch.serialization, "_get_layout")
