"""Flags, legacy tensor types, autocast state and deprecated modules of the bridge."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.fixture(autouse=True)
def _restore_flags() -> Iterator[None]:
    yield
    hpu.disable_inference_mode()
    hpu.enable_recompute_sdp(True)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("inference_mode", "is_inference_mode_enabled"),
        ("dynamic_shape", "get_dynamic_shape_status"),
    ],
)
def test_a_flag_is_off_until_enabled(name: str, query: str) -> None:
    """A program reads a flag back by the bridge's own function."""
    states = [getattr(hpu, query)()]
    for action in ("enable", "disable"):
        getattr(hpu, f"{action}_{name}")()
        states.append(getattr(hpu, query)())

    assert states == [False, True, False]


def test_sdp_kernel_recomputes_by_default_and_restores_the_flag() -> None:
    with contextlib.suppress(KeyError), hpu.sdp_kernel(enable_recompute=False):
        with hpu.sdp_kernel():
            assert hpu.recompute_sdp_enabled()
        assert not hpu.recompute_sdp_enabled()
        raise KeyError

    assert hpu.recompute_sdp_enabled()


@pytest.mark.parametrize(
    "name", ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
)
def test_a_tensor_type_creates_tensors(name: str) -> None:
    """It takes sizes or data. Its instances are the hpu tensors of its dtype."""
    kind, dtype = getattr(hpu, f"{name}Tensor"), getattr(torch, f"{name}Tensor").dtype
    sized, filled = kind(2, 3), kind([1, 0])

    assert (sized.shape, sized.dtype, sized.device.type) == ((2, 3), dtype, "hpu")
    assert filled.tolist() == [1, 0]
    assert filled.dtype == dtype
    assert isinstance(sized, kind)
    assert not isinstance(sized.cpu(), kind)
    assert not isinstance(1, kind)
    assert kind().shape == (0,)
    assert hpu.Tensor is torch.Tensor


@pytest.mark.needs_torch("2.4", "state of autocast for this device in Python")
def test_autocast_can_be_set_and_read() -> None:
    """The state is torch's own. Older torch reads it through the device module."""
    before = (hpu.is_autocast_hpu_enabled(), hpu.get_autocast_hpu_dtype())
    try:
        hpu.set_autocast_hpu_enabled(True)
        hpu.set_autocast_hpu_dtype(torch.float16)
        rows = torch.randn(2, 3, device="hpu")

        assert (hpu.is_autocast_hpu_enabled(), hpu.get_autocast_hpu_dtype()) == (True, torch.float16)
        assert (rows @ rows.T).dtype == torch.float16
    finally:
        hpu.set_autocast_hpu_enabled(before[0])
        hpu.set_autocast_hpu_dtype(before[1])
    assert before == (False, torch.bfloat16)


def test_older_torch_has_autocast_as_a_dispatch_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions set the dispatch key, and the dtype is fixed."""
    from habana_frameworks.torch.hpu import _autocast

    monkeypatch.setattr(_autocast, "_HAS_STATE", False)
    rows = torch.randn(2, 3, device="hpu")
    _autocast.set_autocast_hpu_enabled(True)
    try:
        assert _autocast.is_autocast_hpu_enabled()
        assert (rows @ rows.T).dtype == _autocast.get_autocast_hpu_dtype() == torch.bfloat16
        _autocast.set_autocast_hpu_dtype(torch.bfloat16)
        with pytest.raises(RuntimeError, match=r"must be torch\.bfloat16 with torch < 2\.4 .*, got torch\.float16"):
            _autocast.set_autocast_hpu_dtype(torch.float16)
    finally:
        _autocast.set_autocast_hpu_enabled(False)
    assert (rows @ rows.T).dtype == torch.float32


@pytest.mark.parametrize(
    ("variables", "loads"),
    [
        ({}, True),
        ({"PT_HPU_AUTOLOAD": "0"}, False),
        ({"PT_HPU_LAZY_MODE": "1"}, False),
        ({"PT_HPU_LAZY_MODE": "1", "PT_HPU_AUTOLOAD": "1"}, True),
    ],
)
def test_the_bridges_autoload_follows_its_variables(
    variables: dict[str, str], loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lazy mode a program has to import the bridge itself."""
    from habana_frameworks import autoload

    imported: list[str] = []
    for name in ("PT_HPU_AUTOLOAD", "PT_HPU_LAZY_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("importlib.import_module", imported.append)

    getattr(autoload, "__autoload")()

    assert autoload.is_loaded is True
    assert imported == (["habana_frameworks.torch"] if loads else [])


def test_the_bridge_has_a_version_after_1_19() -> None:
    import importlib.metadata

    import habana_frameworks.torch as bridge

    build = importlib.metadata.version("habana-torch-plugin")

    assert bridge.__version__ == bridge.version() == hpu.__version__ == hpu.version() == build
