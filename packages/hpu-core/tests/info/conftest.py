"""Fixtures for machines that hpu-info reports on."""

from collections.abc import Callable

import pytest

from hpu_core.discovery import SourceResult
from hpu_core.info import BridgeInfo, SystemInfo
from hpu_testing.systems import make_card, make_system, plain_terminal, simulated_system

__all__ = ["bare_system", "make_card", "make_system", "plain_terminal", "simulated_system"]


@pytest.fixture
def bare_system(make_system: Callable[..., SystemInfo]) -> SystemInfo:
    """A machine with torch and Lightning but nothing for Gaudi."""
    return make_system(
        devices=(),
        bridge=BridgeInfo(),
        synapse=None,
        sources=(
            SourceResult(source="bridge", location="the bridge", message="not loaded in this process"),
            SourceResult(source="bridge", location="the bridge", message="not loaded"),
        ),
    )
