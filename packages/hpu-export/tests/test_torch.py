"""Private names and formats of torch that `_torch` depends on."""

import inspect

import torch
from torch.distributed.checkpoint import filesystem, utils

from hpu_export import _torch


def test_torch_has_the_private_names() -> None:
    assert list(inspect.signature(utils._create_file_view).parameters) == ["file", "offset", "length"]
    fields = set(filesystem._StorageInfo.__dataclass_fields__)
    assert {"relative_path", "offset", "length"} <= fields


def test_the_metadata_needs_no_other_globals() -> None:
    """Names that torch has moved would be refused."""
    for module, names in _torch._METADATA_GLOBALS.items():
        if module.startswith("torch.distributed.checkpoint"):
            assert all(hasattr(__import__(module, fromlist=["x"]), name) for name in names)
    assert hasattr(torch.serialization, "_get_layout")
