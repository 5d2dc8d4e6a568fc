"""Private names and formats of torch that `_torch` depends on."""

import io
import pickle
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import filesystem

from hpu_export import _torch


def test_torch_has_the_private_names() -> None:
    fields = set(filesystem._StorageInfo.__dataclass_fields__)
    assert {"relative_path", "offset", "length"} <= fields
    assert torch.BFloat16Storage._dtype is torch.bfloat16


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(4, 3, 2),
        torch.arange(24.0).reshape(3, 4, 2).transpose(0, 1),
        torch.arange(30, dtype=torch.int64).reshape(5, 6)[1:, 2:4],
        torch.ones(4, 2, dtype=torch.bool),
        torch.ones(4, 2, dtype=torch.bfloat16),
        torch.arange(8, dtype=torch.uint8).reshape(4, 2).view(getattr(torch, "float8_e4m3fn", torch.uint8)),
        torch.tensor([1, 2, 3, 4], dtype=getattr(torch, "uint16", torch.int16)),
    ],
    ids=["dense", "transposed", "view", "bool", "bfloat16", "float8", "uint16"],
)
def test_rows_of_a_saved_tensor_are_read(tensor: torch.Tensor) -> None:
    file = io.BytesIO()
    file.write(b"before")
    torch.save(tensor, file)
    length = file.tell() - 6
    file.write(b"behind")
    rows = _torch.load_rows(file, 6, length, tuple(tensor.shape), (1, 3))
    assert rows.dtype is tensor.dtype
    assert rows.tolist() == tensor[1:3].tolist()


def test_only_the_rows_are_read() -> None:
    class File(io.BytesIO):
        count = 0

        def readinto(self, buffer: Any) -> int:
            self.count += len(buffer)
            return super().readinto(buffer)

    file = File()
    torch.save(torch.zeros(2**20, 4), file)
    _torch.load_rows(file, 0, file.tell(), (2**20, 4), (2**19, 2**19 + 2**10))
    # The directory and what describes the tensor are read as well; all rows have 16 MiB.
    assert 2**14 <= file.count < 2**18


@pytest.mark.parametrize(
    "content",
    [
        torch.zeros(4, 2),
        {"weight": torch.zeros(3, 2)},
        torch.zeros(3, 2).to_sparse(),
        torch.zeros(3, 2, dtype=torch.complex64).conj(),
    ],
    ids=["shape", "dict", "sparse", "conjugated"],
)
def test_another_content_is_refused(content: Any) -> None:
    file = io.BytesIO()
    torch.save(content, file)
    with pytest.raises((ValueError, pickle.UnpicklingError), match="a shard must have"):
        _torch.load_rows(file, 0, file.tell(), (3, 2), (0, 3))


def test_the_metadata_needs_no_other_globals() -> None:
    """Names that torch has moved would be refused."""
    for module, names in _torch._METADATA_GLOBALS.items():
        if module.startswith("torch.distributed.checkpoint"):
            assert all(hasattr(__import__(module, fromlist=["x"]), name) for name in names)
    assert hasattr(torch.serialization, "_get_layout")
