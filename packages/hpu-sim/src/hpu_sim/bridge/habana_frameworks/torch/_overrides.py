"""Patches of torch functions that leave out the hpu device in stock torch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch import _torch_2_0, hpu
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager


def patch_torch() -> None:
    """Register ``torch.hpu``, and patch seeding and ``fork_rng`` to include the device.

    Resizing of storages is refused in lazy mode.
    """
    register: Callable[[str, object], None] = torch._register_device_module  # noqa: SLF001 - torch's API for backends
    register("hpu", hpu)
    _patch_seed()
    _patch_storage_resize()
    if torch.__version__.startswith("2.0."):
        _torch_2_0.patch()
    else:
        _patch_fork_rng()


def _patch_seed() -> None:
    torch_manual_seed = torch.random.manual_seed
    torch_seed = torch.random.seed

    @functools.wraps(torch_manual_seed)
    def manual_seed(seed: int) -> torch.Generator:
        generator = torch_manual_seed(seed)
        hpu.random.manual_seed_all(int(seed))
        return generator

    @functools.wraps(torch_seed)
    def seed() -> int:
        value = torch_seed()
        hpu.random.manual_seed_all(value)
        return value

    for module in (torch, torch.random):
        vars(module).update(manual_seed=manual_seed, seed=seed)


def _patch_storage_resize() -> None:
    # torch resizes an hpu storage through a form of `set_` that lazy mode of the bridge refuses.
    resize: Callable[[torch.UntypedStorage, int], torch.UntypedStorage] = torch.UntypedStorage.resize_

    @functools.wraps(resize)
    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type == "hpu":
            native().check_not_lazy("UntypedStorage.resize_", "call `resize_` of a tensor")
        result: torch.UntypedStorage = resize(self, size)
        return result

    setattr(torch.UntypedStorage, "resize_", resize_)  # noqa: B010 - mypy forbids to assign a method


def _patch_fork_rng() -> None:
    torch_fork_rng: Callable[..., AbstractContextManager[None]] = torch.random.fork_rng

    @functools.wraps(torch_fork_rng)
    def fork_rng(
        devices: Iterable[Any] | None = None, *args: Any, device_type: str = "hpu", **kwargs: Any
    ) -> AbstractContextManager[None]:
        # torch's default is every device of the machine. This process has the generator of one.
        if devices is None and device_type == "hpu":
            devices = [0]
        return torch_fork_rng(devices, *args, device_type=device_type, **kwargs)

    vars(torch.random).update(fork_rng=fork_rng)
