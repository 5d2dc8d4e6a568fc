"""torch functions that the bridge replaces, because stock torch leaves the hpu device out of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch import _torch_2_0 as torch_2_0
from habana_frameworks.torch import hpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from types import ModuleType


def patch_torch() -> None:
    """Register ``torch.hpu`` and make seeding and ``fork_rng`` know the device."""
    register: Callable[[str, object], None] = torch._register_device_module  # noqa: SLF001 - torch's way in for backends
    register("hpu", hpu)
    _patch_seeding()
    if torch.__version__.startswith("2.0."):
        torch_2_0.patch()
    else:
        _patch_fork_rng()


def _patch_seeding() -> None:
    stock_manual_seed = torch.random.manual_seed
    stock_seed = torch.random.seed

    @functools.wraps(stock_manual_seed)
    def manual_seed(seed: int) -> torch.Generator:
        generator = stock_manual_seed(seed)
        hpu.random.manual_seed_all(int(seed))
        return generator

    @functools.wraps(stock_seed)
    def seed() -> int:
        value = stock_seed()
        hpu.random.manual_seed_all(value)
        return value

    for module in (torch, torch.random):
        _replace(module, "manual_seed", manual_seed)
        _replace(module, "seed", seed)


def _patch_fork_rng() -> None:
    stock_fork_rng: Callable[..., AbstractContextManager[None]] = torch.random.fork_rng

    @functools.wraps(stock_fork_rng)
    def fork_rng(
        devices: Iterable[Any] | None = None, *args: Any, device_type: str = "hpu", **options: Any
    ) -> AbstractContextManager[None]:
        # A process has one card: torch's own default, every device of the machine, would ask for generators that do
        # not exist.
        if devices is None and device_type == "hpu":
            devices = [0]
        return stock_fork_rng(devices, *args, device_type=device_type, **options)

    _replace(torch.random, "fork_rng", fork_rng)


def _replace(module: ModuleType, name: str, function: Callable[..., object]) -> None:
    setattr(module, name, function)
