"""Replacements for what torch 2.0 lacks; this module and its call sites go with the support of torch 2.0."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch
from packaging.version import Version

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

IS_TORCH_2_0: Final = Version(torch.__version__) < Version("2.1.dev0")


def get_many(store: "Store", keys: Sequence[str]) -> list[bytes]:
    """Return the values of keys, in one request where torch has it."""
    return [store.get(key) for key in keys] if IS_TORCH_2_0 else store.multi_get(list(keys))


def set_first(store: "Store", key: str, value: str) -> str:
    """Set a key that has no value, and return its value."""
    if not IS_TORCH_2_0:
        return store.compare_set(key, "", value).decode()
    # `compare_set` makes its bytes without the GIL there, which crashes a process of several threads.
    if store.add(f"{key}/setters", 1) == 1:
        store.set(key, value)
    return store.get(key).decode()
