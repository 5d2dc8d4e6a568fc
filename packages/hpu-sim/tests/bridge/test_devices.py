"""Device queries of `torch.hpu`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import habana_frameworks.torch as bridge
import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpu import _utils

import hpu_sim
from hpu_sim.device import runtime

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Patch the environment to have no selected module."""
    # Setting before deleting makes monkeypatch remember names that are not there now.
    for name in ("HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_torch_hpu_is_the_device_module() -> None:
    """One of its names is a leftover of the bridge that programs use."""
    assert sys.modules["torch.hpu"] is hpu
    assert bridge.hpu is hpu
    assert bridge.core.hpu is hpu
    assert bridge.core.htexp.hpu is hpu
    assert hpu.hpu is hpu
    # DeepSpeed catches it.
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = hpu.nothing


def test_queries_describe_the_machine() -> None:
    """Programs that replace the bridge's count set the attribute of its function. The capability is a string."""
    assert hpu.device_count() == hpu.device_count._device_count == 2
    assert hpu.get_device_capability() == runtime.active_config().release.version


@pytest.mark.parametrize("device", [None, 0, 1, "hpu", "hpu:1", torch.device("hpu"), torch.device("hpu:0")], ids=repr)
def test_the_name_is_the_generation(device: Any) -> None:
    assert hpu.get_device_name(device) == "GAUDI2"


def test_the_properties_are_a_string() -> None:
    """The names and their order are the bridge's."""
    properties = hpu.get_device_properties(0)

    assert properties.startswith("(")
    assert properties.endswith(")")
    names = "sramBaseAddress dramBaseAddress sramSize dramSize tpcEnabledMask dramEnabled fd device_id device_type"
    assert [pair.partition("=")[0] for pair in properties[1:-1].split(", ")] == names.split()
    assert f"dramSize={96 * 2**30}," in properties


@pytest.mark.parametrize("device", [2, -1, "hpu:2", torch.device("hpu:7")], ids=repr)
def test_a_missing_device_is_the_bridges_error(device: Any) -> None:
    with pytest.raises(AssertionError, match=r"^Invalid device id$"):
        hpu.get_device_name(device)


@pytest.mark.parametrize(
    ("device", "optional", "allow_cpu", "index"),
    [
        (1, False, False, 1),
        ("hpu:1", False, False, 1),
        (torch.device("hpu:0"), False, False, 0),
        (None, True, False, 0),
        ("hpu", True, False, 0),
        ("cpu", False, True, -1),
    ],
)
def test_a_device_argument_has_an_index(device: Any, optional: bool, allow_cpu: bool, index: int) -> None:
    """torch.load reads `map_location` with this function."""
    if optional:
        with pytest.raises(ValueError, match="Expected a hpu device with a specified index or an integer"):
            _utils._get_device_index(device)
    assert _utils._get_device_index(device, optional=optional, allow_cpu=allow_cpu) == index


def test_a_device_is_a_context_manager() -> None:
    """It has no effect, because a process has one device."""
    with hpu.device(0) as context:
        assert context.idx == 0
        assert hpu.current_device() == 0
    # Device 1 exists, but is not this process's.
    for index in (1, 2):
        with pytest.raises(AssertionError, match="Invalid device id"):
            hpu.device(index)


@pytest.mark.parametrize(
    ("module", "visible", "device", "selected"),
    [
        # A machine with fewer than eight devices has no module ids to select from.
        (None, None, 0, None),
        # The index is that of HABANA_VISIBLE_MODULES.
        (None, "4,6", 1, "6"),
        (None, "4,6", "hpu:1", "6"),
        (None, "4,6", torch.device("hpu:1"), "6"),
        # A launcher may have set the module.
        ("1", None, 1, "1"),
        # A process does not change its device.
        ("1", None, 0, "1"),
    ],
)
def test_selecting_a_device_selects_a_module(
    module: str | None, visible: str | None, device: Any, selected: str | None, variables: pytest.MonkeyPatch
) -> None:
    _set(variables, module, visible)

    hpu.set_device(device)

    assert os.environ.get("HLS_MODULE_ID") == selected


@pytest.mark.parametrize(
    ("module", "visible", "device", "message"),
    [
        # Without a module id, the acquired device is unknown.
        (None, None, 1, r"`device` must be 0 without HLS_MODULE_ID .*, got 1"),
        (None, None, 2, "Invalid device id"),
        (None, "0,1,2,3,4,5,6,7,8", 0, "must have at most 8 modules, got 9"),
        ("1", "4,6", 0, "HLS_MODULE_ID must be one of the modules 4,6, got 1"),
    ],
)
def test_a_device_that_cannot_be_selected_is_an_error(
    module: str | None, visible: str | None, device: int, message: str, variables: pytest.MonkeyPatch
) -> None:
    _set(variables, module, visible)

    with pytest.raises(AssertionError, match=message):
        hpu.set_device(device)


def _set(variables: pytest.MonkeyPatch, module: str | None, visible: str | None) -> None:
    for name, value in (("HLS_MODULE_ID", module), ("HABANA_VISIBLE_MODULES", visible)):
        if value is not None:
            variables.setenv(name, value)


def test_a_full_server_has_modules_to_select(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """With eight devices the index is the module id, and the process acquires that module."""
    program = (
        "import os, torch\ntorch.hpu.set_device(5)\ntorch.ones(1, device='hpu')\nprint(os.environ['HLS_MODULE_ID'])"
    )

    result = run_python(program, HPU_SIM_DEVICES="8")

    assert result.stdout == "5\n"
    assert result.stderr.startswith("hpu-sim: simulated card 5 of 8 x GAUDI2")


@pytest.mark.needs_torch("2.1", "checkpointing that knows other devices than CUDA")
def test_activation_checkpointing_defaults_to_the_device() -> None:
    """The bridge sets the default when it acquires a device."""
    from torch.utils.checkpoint import DefaultDeviceType

    hpu.init()

    assert DefaultDeviceType.get_device_type() == "hpu"


def test_synchronize_ends_the_graph(statistics: Callable[[], dict[str, int]]) -> None:
    """It counts as a host sync."""
    torch.ones(1, device="hpu").add_(1)

    hpu.synchronize()

    assert (statistics()["graphs"], statistics()["host_syncs"]) == (1, 1)
    assert hpu_sim.is_active()


@pytest.mark.parametrize("device", [None, "hpu", torch.device("hpu")], ids=repr)
@pytest.mark.parametrize("module", ["0", "1"])
def test_a_device_without_an_index_is_any_module(device: Any, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's ZeRO stage 3 selects it on every rank."""
    monkeypatch.setenv("HLS_MODULE_ID", module)

    hpu.set_device(device)

    assert os.environ["HLS_MODULE_ID"] == module
    assert hpu.is_initialized()
    with pytest.raises(ValueError, match="Expected a hpu device, but got: cpu"):
        hpu.set_device("cpu")
