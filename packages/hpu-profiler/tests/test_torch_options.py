"""Arguments for torch.profiler.profile."""

import enum
from typing import Any

import pytest
import torch.profiler

from hpu_profiler import _torch_options


class _BridgeActivity(enum.Enum):
    """The enum with which the bridge replaces torch's up to SynapseAI 1.19."""

    CPU = 1
    CUDA = 2
    HPU = 3


@pytest.mark.parametrize(
    ("activities", "on_device", "names"),
    [
        (None, True, ["CPU", "HPU"]),
        (None, False, ["CPU"]),
        ([_BridgeActivity.HPU], True, ["HPU"]),
        ([_BridgeActivity.CPU, _BridgeActivity.HPU], False, ["CPU"]),
        ([_BridgeActivity.HPU], False, ["CPU"]),
        ([torch.profiler.ProfilerActivity.CPU], True, ["CPU"]),
    ],
)
def test_activities_of_any_enum_are_taken_by_name(
    activities: list[Any] | None, on_device: bool, names: list[str]
) -> None:
    """Without a device, HPU activity is left out."""
    assert _torch_options.activity_names(activities, on_device=on_device) == names


def test_activities_are_looked_up_in_the_current_enum(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"activities": [torch.profiler.ProfilerActivity.CPU, _BridgeActivity.HPU]}
    monkeypatch.setattr(torch.profiler, "ProfilerActivity", _BridgeActivity)

    activities = _torch_options.torch_options(options, on_device=True, verbose=False)["activities"]

    assert activities == [_BridgeActivity.CPU, _BridgeActivity.HPU]


def test_missing_activity_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is recorded nevertheless."""
    enum_without_hpu = enum.Enum("enum_without_hpu", ["CPU", "CUDA"])
    monkeypatch.setattr(torch.profiler, "ProfilerActivity", enum_without_hpu)

    with pytest.warns(UserWarning, match=r"does not record HPU activity: torch .* has no ProfilerActivity\.HPU"):
        options = _torch_options.torch_options({}, on_device=True, verbose=False)

    assert options["activities"] == [enum_without_hpu["CPU"]]


def test_arguments_that_torch_lacks_are_left_out() -> None:
    """The bridge's profiler has `debug_activities` up to SynapseAI 1.19 only."""
    arguments = {"record_shapes": True, "debug_activities": [], "experimental_config": None}

    options = _torch_options.torch_options(arguments, on_device=False, verbose=False)

    assert options == {"record_shapes": True, "activities": [torch.profiler.ProfilerActivity.CPU]}


@pytest.mark.parametrize("value", [None, "profile_api_light", "profile_api_with_nics", "1", ""])
def test_values_that_the_bridge_passes_on_are_accepted(value: str | None) -> None:
    """SynapseAI interprets them."""
    _torch_options.check_environment({} if value is None else {"HABANA_PROFILE": value})


def test_value_that_disables_the_profiler_is_rejected() -> None:
    with pytest.raises(RuntimeError, match=r"HABANA_PROFILE must not be '0' .* got '0'.*`unset HABANA_PROFILE`"):
        _torch_options.check_environment({"HABANA_PROFILE": "0"})
