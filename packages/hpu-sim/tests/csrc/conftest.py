"""Fixtures for modes of the device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from hpu_sim.device import runtime
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Iterator


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
