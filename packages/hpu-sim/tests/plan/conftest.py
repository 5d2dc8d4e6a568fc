"""Fixtures: eager mode, as FSDP resizes storages, which lazy mode refuses; and processes that open a device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from hpu_sim.device import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def eager() -> Iterator[None]:
    """Let the device of the suite be in eager mode, on a machine with 8."""
    config, native = runtime.active_config(), runtime.native()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "active_config", lambda: dataclasses.replace(config, lazy=False, devices=8))
        native.configure(8, False, runtime.acquire_device)
        yield
    native.configure(config.devices, config.lazy, runtime.acquire_device)


@pytest.fixture
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a forked process open a device, as that of a planner which has none does."""
    monkeypatch.setattr(runtime._state, "lock", None)
