"""Fixtures for modes of the device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from hpu_sim.device import runtime
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test on a strict device."""
    monkeypatch.setattr(runtime._state, "config", dataclasses.replace(runtime.active_config(), strict=True))
    runtime.set_strict(native(), "GAUDI2", enabled=True)
    yield
    runtime.set_strict(native(), "GAUDI2", enabled=False)


@pytest.fixture
def pipelined(eager_mode: None) -> Iterator[None]:
    """Run the test in eager mode with HPU_SIM_ASYNC=1."""
    native().set_execution_mode("later")
    yield
    native().synchronize()
    native().set_execution_mode("now")


@pytest.fixture
def leave_memory() -> Iterator[Callable[[int | None], None]]:
    """Leave the device so many bytes beside those in use, or all of its memory for None."""
    machine = runtime.active_config()

    def leave(left: int | None) -> None:
        limit = machine.memory_bytes if left is None else native().memory_stats()["in_use"] + left
        native().set_memory_limit(limit)

    yield leave
    leave(None)
