"""Tests of the archived package's helpers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_core
from hpu_core import HPUAccelerator, bridge, collectives
from lightning_habana.pytorch.datamodule import utils
from lightning_habana.utils import hpu_distributed, imports, resources


@pytest.mark.parametrize(("version", "expected"), [("1.24.1.482", "1.24.1"), ("1.11.0", "1.11.0"), (None, "0.0.0")])
def test_synapse_version_is_a_string_of_three_parts(
    version: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpu_core, "synapse_version", lambda: version and Version(version), raising=False)

    assert resources.get_hpu_synapse_version() == expected


@pytest.mark.parametrize(("version", "expected"), [("1.24.1.482", True), ("1.13.0", False), (None, False)])
def test_synapse_flag_is_evaluated_on_first_use(
    version: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpu_core, "synapse_version", lambda: version and Version(version), raising=False)
    monkeypatch.delitem(vars(imports), "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0", raising=False)
    found = imports._HPU_SYNAPSE_GREATER_EQUAL_1_14_0
    monkeypatch.delitem(vars(imports), "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0")

    assert found is expected


def test_flags_for_torch_and_lightning() -> None:
    assert (imports._TORCH_GREATER_EQUAL_2_0_0, imports._LIGHTNING_GREATER_EQUAL_2_0_0) == (True, True)
    assert imports._TORCH_LESSER_EQUAL_1_13_1 is False
    assert imports._TORCH_LESSER_2_3_0 is (Version(torch.__version__).release < (2, 3))
    assert imports._KINETO_AVAILABLE is torch.profiler.kineto_available()


@pytest.mark.parametrize(("generation", "expected"), [("GAUDI3", "GAUDI3"), (None, "GAUDI")])
def test_generation_defaults_to_gaudi(generation: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation, raising=False)

    assert resources.get_device_name_from_backend() == resources.get_device_name_from_hlsmi() == expected


def test_device_stats_ignore_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has one device."""
    monkeypatch.setattr(bridge, "is_open", lambda: True)
    monkeypatch.setattr(bridge, "memory_stats", lambda: {"InUse": 8.0})

    assert resources.get_device_stats(torch.device("hpu")) == {"InUse": 8.0}


@pytest.mark.parametrize("function", [resources.is_fp8_available, resources.is_fp16_available])
def test_precision_checks_raise_os_error_without_the_bridge(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archived package raised the same error."""
    monkeypatch.setattr(bridge, "is_installed", lambda: False)

    with pytest.raises(OSError, match=r"^the Gaudi PyTorch bridge \(`habana_frameworks`\) is not installed"):
        function()


@pytest.mark.parametrize("available", [True, False])
def test_precision_checks_return_a_reason(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "is_installed", lambda: True)
    monkeypatch.setattr(bridge, "is_fp16_supported", lambda: available)
    monkeypatch.setattr(HPUAccelerator, "is_fp8_available", lambda: (available, "" if available else "a reason"))
    for found, reason in (resources.is_fp8_available(), resources.is_fp16_available()):
        assert (found, bool(reason)) == (available, not available)


def test_modify_fp8_json_keeps_other_entries(tmp_path: Path) -> None:
    file = tmp_path / "quant.json"
    file.write_text('{"mode": "MEASURE", "method": "HOOKS"}')
    resources.modify_fp8_json(str(file), {"mode": "QUANTIZE"})

    assert json.loads(file.read_text()) == {"mode": "QUANTIZE", "method": "HOOKS"}


@pytest.mark.parametrize("generation", ["GAUDI", "GAUDI2", "GAUDI3"])
def test_generation_helpers_of_the_datamodule(generation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation, raising=False)

    assert (utils.is_gaudi(), utils.is_gaudi2()) == (generation == "GAUDI", generation == "GAUDI2")
    assert utils.get_device_string() == generation.lower()


def test_get_device_string_without_an_hpu_raises_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpu_core, "device_name", lambda: None, raising=False)

    with pytest.raises(ValueError, match=r"^found no Gaudi card of a known generation: run `hpu-info`"):
        utils.get_device_string()


def test_rank_helpers_without_a_process_group() -> None:
    assert (utils.is_dist_avail_and_initialized(), utils.get_world_size(), utils.get_rank()) == (False, 1, 0)
    assert utils.is_main_process()


def test_reduction_calls_hpu_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpu_distributed, "_distributed_available", lambda: True)
    monkeypatch.setattr(collectives, "all_reduce", lambda *arguments: arguments)
    tensor = torch.ones(2)
    arguments: Any = hpu_distributed._sync_ddp_if_available(tensor, "a group", "mean")

    assert arguments == (tensor, "a group", "mean")


def test_reduction_without_a_process_group_returns_the_tensor() -> None:
    tensor = torch.ones(2)

    assert hpu_distributed._sync_hpu_processes_if_available(tensor, reduce_op="product") is tensor
