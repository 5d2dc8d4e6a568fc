"""Selecting the current device."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.mark.parametrize("device", [None, "hpu", torch.device("hpu")], ids=repr)
@pytest.mark.parametrize("module", ["0", "1"])
def test_a_device_without_an_index_is_any_module(device: Any, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's ZeRO stage 3 selects it on every rank."""
    monkeypatch.setenv("HLS_MODULE_ID", module)

    hpu.set_device(device)

    assert os.environ["HLS_MODULE_ID"] == module
    assert hpu.is_initialized()


def test_another_kind_of_device_is_refused() -> None:
    """The error names the device."""
    with pytest.raises(ValueError, match="Expected a hpu device, but got: cpu"):
        hpu.set_device("cpu")
