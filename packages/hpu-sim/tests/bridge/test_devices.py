"""`torch.hpu` answers as the bridge does."""

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
from hpu_sim import runtime

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment, without a chosen module, and put back in the end whatever the test's calls set."""
    # Setting before deleting makes monkeypatch remember names that are not there now.
    for name in ("HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_torch_hpu_is_the_module() -> None:
    """By each of its names, one of which is a leak of the bridge's that programs use."""
    assert sys.modules["torch.hpu"] is hpu
    assert bridge.hpu is hpu
    assert bridge.core.hpu is hpu
    assert bridge.core.htexp.hpu is hpu
    assert hpu.hpu is hpu


def test_an_unknown_name_is_an_attribute_error() -> None:
    """DeepSpeed catches it."""
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = hpu.nothing


def test_the_cards_are_counted() -> None:
    """All of the machine, as an int."""
    assert (hpu.device_count(), type(hpu.device_count())) == (2, int)


def test_the_count_ignores_visible_modules(variables: pytest.MonkeyPatch) -> None:
    """On the bridge, too, which users find surprising."""
    variables.setenv("HABANA_VISIBLE_MODULES", "0")

    assert hpu.device_count() == 2


def test_there_is_a_card() -> None:
    """Which computes in bfloat16."""
    assert hpu.is_available() is True
    assert hpu.is_bf16_supported() is True


def test_the_current_device_is_always_0() -> None:
    """Whatever module it is."""
    assert hpu.current_device() == 0
    assert hpu.is_initialized() is True
    assert hpu._initialized is True


@pytest.mark.parametrize("device", [None, 0, 1, "hpu", "hpu:1", torch.device("hpu"), torch.device("hpu:0")], ids=repr)
def test_the_name_is_the_generation(device: Any) -> None:
    """For any card of the machine."""
    assert hpu.get_device_name(device) == "GAUDI2"


def test_the_capability_is_text() -> None:
    """Not a pair of numbers, as on other accelerators."""
    assert hpu.get_device_capability() == runtime.active_config().release.version


def test_the_properties_are_text() -> None:
    """With the bridge's names in its order."""
    properties = hpu.get_device_properties(0)

    assert properties.startswith("(")
    assert properties.endswith(")")
    assert [pair.partition("=")[0] for pair in properties[1:-1].split(", ")] == [
        "sramBaseAddress",
        "dramBaseAddress",
        "sramSize",
        "dramSize",
        "tpcEnabledMask",
        "dramEnabled",
        "fd",
        "device_id",
        "device_type",
    ]
    assert f"dramSize={96 * 2**30}," in properties


def test_cards_of_a_machine_reach_each_other() -> None:
    """As a bool."""
    assert hpu.can_device_access_peer(0, 1) is True


def test_there_is_one_architecture() -> None:
    """The generation, and no flags to compile for it."""
    assert hpu.get_arch_list() == ["GAUDI2"]
    assert hpu.get_gencode_flags() == ""


def test_synchronize_takes_no_device() -> None:
    """On the bridge, too."""
    assert hpu.synchronize() is None
    with pytest.raises(TypeError):
        hpu.synchronize(0)


@pytest.mark.parametrize("device", [2, -1, "hpu:2", torch.device("hpu:7")], ids=repr)
def test_a_card_that_is_not_there_is_the_bridges_error(device: Any) -> None:
    """An AssertionError."""
    with pytest.raises(AssertionError, match=r"^Invalid device id$"):
        hpu.get_device_name(device)


@pytest.mark.parametrize("device", ["cpu", torch.device("cuda:0")], ids=repr)
def test_another_kind_of_device_is_the_bridges_error(device: Any) -> None:
    """A ValueError that names it."""
    with pytest.raises(ValueError, match=f"Expected a hpu device, but got: {device}"):
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
def test_a_device_argument_is_read(device: Any, optional: bool, allow_cpu: bool, index: int) -> None:
    """torch.load reads `map_location` with it."""
    assert _utils._get_device_index(device, optional=optional, allow_cpu=allow_cpu) == index


@pytest.mark.parametrize("device", [None, "hpu"])
def test_a_missing_index_is_named(device: Any) -> None:
    """Where one is needed."""
    with pytest.raises(ValueError, match="Expected a hpu device with a specified index or an integer"):
        _utils._get_device_index(device)


def test_a_card_can_be_a_context() -> None:
    """Nothing changes in it, since a process has one card."""
    with hpu.device(1) as context:
        assert context.idx == 1
        assert hpu.current_device() == 0
    with hpu.device_of(torch.ones(1, device="hpu")) as context:
        assert context.idx == 0


def test_a_context_of_a_card_that_is_not_there_is_an_error() -> None:
    """As any use of its index."""
    with pytest.raises(AssertionError, match="Invalid device id"):
        hpu.device(2)


def test_choosing_device_0_of_a_small_machine_sets_nothing(variables: pytest.MonkeyPatch) -> None:
    """A machine with fewer than eight cards has no module ids to choose from."""
    hpu.set_device(0)

    assert "HLS_MODULE_ID" not in os.environ


def test_choosing_another_device_of_a_small_machine_is_an_error(variables: pytest.MonkeyPatch) -> None:
    """Without a module the process cannot know which it would get."""
    with pytest.raises(AssertionError, match="only device 0 can be chosen, got 1"):
        hpu.set_device(1)


@pytest.mark.parametrize("device", [1, "hpu:1", torch.device("hpu:1")], ids=repr)
def test_choosing_among_visible_modules_sets_the_module(device: Any, variables: pytest.MonkeyPatch) -> None:
    """The list's element of that index."""
    variables.setenv("HABANA_VISIBLE_MODULES", "4,6")

    hpu.set_device(device)

    assert os.environ["HLS_MODULE_ID"] == "6"


def test_choosing_what_was_chosen_changes_nothing(variables: pytest.MonkeyPatch) -> None:
    """A launcher has set the module."""
    variables.setenv("HLS_MODULE_ID", "1")

    hpu.set_device(1)

    assert os.environ["HLS_MODULE_ID"] == "1"


def test_choosing_against_what_was_chosen_is_an_error(variables: pytest.MonkeyPatch) -> None:
    """A process does not change its card."""
    variables.setenv("HLS_MODULE_ID", "1")

    with pytest.raises(AssertionError, match="HLS_MODULE_ID=1 is set and is not device 0"):
        hpu.set_device(0)


def test_more_modules_than_a_server_has_are_an_error(variables: pytest.MonkeyPatch) -> None:
    """There are at most eight."""
    variables.setenv("HABANA_VISIBLE_MODULES", "0,1,2,3,4,5,6,7,8")

    with pytest.raises(AssertionError, match="names 9 modules, a server has 8"):
        hpu.set_device(0)


def test_choosing_a_card_that_is_not_there_is_an_error(variables: pytest.MonkeyPatch) -> None:
    """As any use of its index."""
    with pytest.raises(AssertionError, match="Invalid device id"):
        hpu.set_device(2)


def test_a_full_server_has_modules_to_choose_from(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """With eight cards the index is the module, and that is the card which is taken."""
    program = """
    import os
    import hpu_sim
    hpu_sim.activate(devices=8)
    import torch
    torch.hpu.set_device(5)
    torch.ones(1, device="hpu")
    print(os.environ["HLS_MODULE_ID"])
    """

    result = run_python(program)

    assert result.stdout == "5\n"
    assert result.stderr.startswith("hpu-sim: simulated card 5 of 8 x GAUDI2")


@pytest.mark.needs_torch("2.1", "checkpointing that knows other devices than CUDA")
def test_activation_checkpointing_is_told_of_the_device() -> None:
    """The bridge does it when it takes the card."""
    from torch.utils.checkpoint import DefaultDeviceType

    hpu.init()

    assert DefaultDeviceType.get_device_type() == "hpu"


def test_waiting_closes_the_graph(statistics: Callable[[], dict[str, int]]) -> None:
    """And is counted as a wait."""
    torch.ones(1, device="hpu").add_(1)

    hpu.synchronize()

    assert (statistics()["graphs"], statistics()["host_syncs"]) == (1, 1)
    assert hpu_sim.is_active()
