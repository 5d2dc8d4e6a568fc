"""Helpers that other programs import."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_core
from hpu_core import HPUAccelerator, bridge, collectives, telemetry
from lightning_habana.pytorch.datamodule import utils
from lightning_habana.utils import hpu_distributed, imports, resources


@pytest.mark.parametrize(("version", "expected"), [("1.24.1.482", "1.24.1"), ("1.11.0", "1.11.0"), (None, "0.0.0")])
def test_the_release_is_text(version: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three parts, "0.0.0" where there is none."""
    monkeypatch.setattr(hpu_core, "synapse_version", lambda: version and Version(version), raising=False)

    assert resources.get_hpu_synapse_version() == expected


@pytest.mark.parametrize(("version", "expected"), [("1.24.1.482", True), ("1.13.0", False), (None, False)])
def test_releases_are_compared(version: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the flag is first used."""
    monkeypatch.setattr(hpu_core, "synapse_version", lambda: version and Version(version), raising=False)
    monkeypatch.delitem(vars(imports), "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0", raising=False)
    found = imports._HPU_SYNAPSE_GREATER_EQUAL_1_14_0
    monkeypatch.delitem(vars(imports), "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0")

    assert found is expected


def test_versions_of_torch_and_lightning_are_compared() -> None:
    """What this family needs is newer than most of what was asked."""
    assert (imports._TORCH_GREATER_EQUAL_2_0_0, imports._LIGHTNING_GREATER_EQUAL_2_0_0) == (True, True)
    assert imports._TORCH_LESSER_EQUAL_1_13_1 is False
    assert imports._TORCH_LESSER_2_3_0 is (Version(torch.__version__).release < (2, 3))
    assert imports._KINETO_AVAILABLE is torch.profiler.kineto_available()


def test_the_bridge_is_looked_for() -> None:
    """By one seam, in both modules."""
    assert resources._HABANA_FRAMEWORK_AVAILABLE is imports._HABANA_FRAMEWORK_AVAILABLE is bridge.is_installed()


@pytest.mark.parametrize(("generation", "expected"), [("GAUDI3", "GAUDI3"), (None, "GAUDI")])
def test_the_generation_has_a_default(generation: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it had."""
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation, raising=False)

    assert resources.get_device_name_from_backend() == resources.get_device_name_from_hlsmi() == expected


def test_no_card_is_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archived package counted eight."""
    monkeypatch.setattr(hpu_core, "device_count", lambda: 0, raising=False)

    assert resources.device_count() == 0


def test_figures_are_the_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever device is asked about: a process has one."""
    monkeypatch.setattr(telemetry, "device_stats", lambda: {"InUse": 8.0})

    assert resources.get_device_stats(torch.device("hpu")) == {"InUse": 8.0}


@pytest.mark.parametrize("ask", [resources.is_fp8_available, resources.is_fp16_available])
def test_precision_needs_the_bridge(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the question is an OSError, as it was."""
    monkeypatch.setattr(bridge, "is_installed", lambda: False)

    with pytest.raises(OSError, match=r"^the Gaudi PyTorch bridge \(`habana_frameworks`\) is not installed"):
        ask()


@pytest.mark.parametrize("available", [True, False])
def test_precision_is_answered_with_a_reason(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values, the second of which says why not."""
    monkeypatch.setattr(bridge, "is_installed", lambda: True)
    monkeypatch.setattr(bridge, "is_fp16_supported", lambda: available)
    monkeypatch.setattr(HPUAccelerator, "is_fp8_available", lambda: (available, "" if available else "a reason"))
    for found, reason in (resources.is_fp8_available(), resources.is_fp16_available()):
        assert (found, bool(reason)) == (available, not available)


def test_entries_of_a_json_file_are_set(tmp_path: Path) -> None:
    """The others stay."""
    file = tmp_path / "quant.json"
    file.write_text('{"mode": "MEASURE", "method": "HOOKS"}')
    resources.modify_fp8_json(str(file), {"mode": "QUANTIZE"})

    assert json.loads(file.read_text()) == {"mode": "QUANTIZE", "method": "HOOKS"}


@pytest.mark.parametrize(("devices", "expected"), [(None, None), (2, 2), ("3", 3)])
def test_devices_are_parsed(devices: Any, expected: int | None) -> None:
    """As the accelerator does, and None is None."""
    assert resources._parse_hpus(devices) == expected


@pytest.mark.parametrize("generation", ["GAUDI", "GAUDI2", "GAUDI3"])
def test_loaders_ask_for_the_generation(generation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without opening a card."""
    monkeypatch.setattr(hpu_core, "device_name", lambda: generation, raising=False)

    assert (utils.is_gaudi(), utils.is_gaudi2()) == (generation == "GAUDI", generation == "GAUDI2")
    assert utils.get_device_string() == generation.lower()


def test_without_a_card_there_is_no_device_string(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ValueError, as for an unsupported one."""
    monkeypatch.setattr(hpu_core, "device_name", lambda: None, raising=False)

    with pytest.raises(ValueError, match=r"^there is no Gaudi card whose generation is known: `hpu-info` shows"):
        utils.get_device_string()


def test_without_a_process_group_a_process_is_alone() -> None:
    """Rank 0 of one."""
    assert (utils.is_dist_avail_and_initialized(), utils.get_world_size(), utils.get_rank()) == (False, 1, 0)
    assert utils.is_main_process()


def test_without_a_process_group_nothing_is_reduced() -> None:
    """The tensor comes back as it is."""
    tensor = torch.ones(2)

    assert hpu_distributed._sync_hpu_processes_if_available(tensor, reduce_op="product") is tensor


def test_with_one_hpu_core_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was asked for."""
    monkeypatch.setattr(hpu_distributed, "_distributed_available", lambda: True)
    monkeypatch.setattr(collectives, "all_reduce", lambda *arguments: arguments)
    tensor = torch.ones(2)
    asked: Any = hpu_distributed._sync_ddp_if_available(tensor, "a group", "mean")

    assert asked == (tensor, "a group", "mean")


@pytest.mark.parametrize("operation", ["sum", "MIN", "max", "mean", "avg", torch.distributed.ReduceOp.AVG])
def test_operations_that_were_supported(operation: Any) -> None:
    """By name, in either case, and as torch's."""
    assert hpu_distributed._is_reduce_op_supported(operation)


@pytest.mark.parametrize("operation", ["product", torch.distributed.ReduceOp.BXOR, None])
def test_another_operation_is_a_type_error(operation: Any) -> None:
    """As it was."""
    with pytest.raises(TypeError, match=r"^`reduce_op` must be one of 'sum', 'min', 'max', 'mean', 'avg'"):
        hpu_distributed._is_reduce_op_supported(operation)


def test_the_table_of_operations_is_torchs() -> None:
    """By name."""
    assert hpu_distributed.supported_reduce_ops == {
        "sum": torch.distributed.ReduceOp.SUM,
        "min": torch.distributed.ReduceOp.MIN,
        "max": torch.distributed.ReduceOp.MAX,
    }
