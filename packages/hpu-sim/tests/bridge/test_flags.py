"""Flags, legacy tensor types, autocast state and deprecated modules of the bridge."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.fixture(autouse=True)
def _restore_flags() -> Iterator[None]:
    yield
    hpu.disable_inference_mode()
    hpu.disable_matmul3d_2d_reshape()
    hpu.enable_recompute_sdp(True)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("inference_mode", "is_inference_mode_enabled"),
        ("matmul3d_2d_reshape", "is_matmul3d_2d_reshape_enabled"),
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


@pytest.mark.parametrize("name", ["optim_output_sif", "quantization"])
def test_a_flag_of_the_graph_compiler_is_accepted(name: str) -> None:
    assert getattr(hpu, f"enable_{name}")() is None
    assert getattr(hpu, f"disable_{name}")() is None


def test_no_constants_are_written(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()

    hpu.enable_const_section_serialization(str(tmp_path), True, True)
    torch.ones(1, device="hpu").item()
    hpu.disable_const_section_serialization()

    assert list(tmp_path.iterdir()) == [kept]


def test_sdp_kernel_recomputes_by_default_and_restores_the_flag() -> None:
    with contextlib.suppress(KeyError), hpu.sdp_kernel(enable_recompute=False):
        with hpu.sdp_kernel():
            assert hpu.recompute_sdp_enabled()
        assert not hpu.recompute_sdp_enabled()
        raise KeyError

    assert hpu.recompute_sdp_enabled()


def test_the_deterministic_flag_is_torchs() -> None:
    """The names are deprecated."""
    try:
        with pytest.warns(UserWarning, match="setDeterministic is deprecated"):
            hpu.setDeterministic(True)
        with pytest.warns(UserWarning, match="getDeterministic is deprecated") as caught:
            assert hpu.getDeterministic() is True
        assert caught[0].filename == __file__
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(mode=False)


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


def test_the_extended_summary_agrees_with_memory_stats() -> None:
    kept = torch.ones(1000, device="hpu")

    summary, statistics = hpu._extended_memory_summary_dict(), hpu.memory_stats()

    first = "limit in_use persistent workspace last_workspace future max_cntgs_chunk max_in_use num_allocs num_free"
    assert list(summary) == [*first.split(), "max_alloc_size", "active_allocs"]
    assert summary["in_use"] == statistics["InUse"] >= kept.numel() * kept.element_size()
    assert summary["active_allocs"] == statistics["ActiveAllocs"]


@pytest.mark.parametrize("name", ["is_available", "device_count", "get_device_name"])
def test_the_functions_of_torch_hpu_warn(name: str) -> None:
    torch_hpu = importlib.import_module("torch_hpu")

    with pytest.warns(DeprecationWarning, match=rf"torch_hpu\.{name} is deprecated, use torch\.hpu\.{name}"):
        answer = getattr(torch_hpu, name)()

    assert answer == getattr(hpu, name)()


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


def test_load_habana_profiler_exists_up_to_1_19(output_on: Callable[..., str]) -> None:
    program = "import torch; from habana_frameworks.torch.utils import library_loader as l; l.load_habana_profiler()"

    assert output_on(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.18.0") == ""
