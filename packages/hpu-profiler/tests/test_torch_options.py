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


@pytest.mark.parametrize(("on_device", "names"), [(True, ["CPU", "HPU"]), (False, ["CPU"])])
def test_host_and_device_are_recorded_by_default(on_device: bool, names: list[str]) -> None:
    assert _torch_options.activity_names(None, on_device=on_device) == names


@pytest.mark.parametrize(
    ("activities", "on_device", "names"),
    [
        ([_BridgeActivity.HPU], True, ["HPU"]),
        ([_BridgeActivity.CPU, _BridgeActivity.HPU], False, ["CPU"]),
        ([_BridgeActivity.HPU], False, ["CPU"]),
        ([torch.profiler.ProfilerActivity.CPU], True, ["CPU"]),
    ],
)
def test_activities_of_any_enum_are_taken_by_name(activities: list[Any], on_device: bool, names: list[str]) -> None:
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


@pytest.mark.parametrize("environment", [{}, {"HABANA_PROFILE": "profile_api_light"}])
def test_default_of_the_bridge_is_accepted(environment: dict[str, str]) -> None:
    _torch_options.check_environment(environment)


@pytest.mark.parametrize("value", ["0", "1", "my_template", ""])
def test_other_values_of_habana_profile_are_rejected(value: str) -> None:
    with pytest.raises(RuntimeError, match=rf"HABANA_PROFILE must be unset .* got '{value}'.*`unset HABANA_PROFILE`"):
        _torch_options.check_environment({"HABANA_PROFILE": value})
