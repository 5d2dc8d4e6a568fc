"""Fixtures for machines that hpu-doctor checks."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_core.info import SystemInfo
from hpu_doctor.machine import Address, Machine
from hpu_testing.systems import make_card, make_system, plain_terminal, simulated_system

__all__ = ["make_card", "make_machine", "make_system", "plain_terminal", "simulated_system"]

# Modules that tests of `verify`, and processes that they start, share.
sys.path.insert(0, str(Path(__file__).parent / "verify"))


@pytest.fixture(autouse=True, scope="session")
def _own_cards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the programs of these tests simulated cards of their own: tests of another process hold others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPU_SIM_RUNTIME_DIR", str(tmp_path_factory.mktemp("cards")))
        yield


@pytest.fixture
def make_machine(make_system: Callable[..., SystemInfo]) -> Callable[..., Machine]:
    """Return a machine of 8 cards without a problem, with the fields given."""

    def make(**different: Any) -> Machine:
        known = {
            "host": "node-1",
            "system": make_system(),
            "logs": "/var/log/habana_logs",
            "interfaces": {"eth0": True, "eth1": False, "lo": True},
            "address": Address(name="node-1", resolved="10.0.0.1"),
            "rank": 0,
            "nodes": 2,
        }
        return Machine(**{**known, **different})

    return make
