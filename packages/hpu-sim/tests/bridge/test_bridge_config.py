"""Flags of the bridge."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch.internal import bridge_config


def test_a_flag_is_set_for_a_while() -> None:
    with bridge_config.env_setting("PT_COMPILE_ONLY_MODE", True):
        assert bridge_config._flags["PT_COMPILE_ONLY_MODE"] is True

    assert bridge_config._flags["PT_COMPILE_ONLY_MODE"] is False


def test_operators_without_a_kernel_are_refused_for_a_while() -> None:
    rows = torch.ones(2, device="hpu")

    with bridge_config.env_setting("PT_HPU_PLACE_ON_CPU", "none"), pytest.raises(RuntimeError, match="digamma"):
        rows.digamma()

    assert rows.digamma().shape == (2,)
