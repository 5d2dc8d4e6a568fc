"""What torch is asked to record."""

import enum

import pytest
import torch.profiler

from hpu_profiler import _activities


class _Bridges(enum.Enum):
    """The enum that the bridge puts in the place of torch's up to 1.19."""

    CPU = 1
    CUDA = 2
    HPU = 3


@pytest.mark.parametrize(("on_card", "names"), [(True, ["CPU", "HPU"]), (False, ["CPU"])])
def test_by_default_host_and_card_are_recorded(on_card: bool, names: list[str]) -> None:
    """Where there is a card."""
    assert _activities.names_of(None, on_card=on_card) == names


@pytest.mark.parametrize(
    ("wanted", "on_card", "names"),
    [
        ([_Bridges.HPU], True, ["HPU"]),
        ([_Bridges.CPU, _Bridges.HPU], False, ["CPU"]),
        ([_Bridges.HPU], False, ["CPU"]),
        ([torch.profiler.ProfilerActivity.CPU], True, ["CPU"]),
    ],
)
def test_what_the_user_wants_is_taken_by_name(wanted: list[object], on_card: bool, names: list[str]) -> None:
    """From whichever enum; without a card there is none of it to record."""
    assert _activities.names_of(wanted, on_card=on_card) == names


def test_names_are_looked_up_in_the_enum_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was imported first."""
    monkeypatch.setattr(torch.profiler, "ProfilerActivity", _Bridges)

    assert _activities.look_up(["CPU", "HPU", "MTIA"]) == ([_Bridges.CPU, _Bridges.HPU], ["MTIA"])


@pytest.mark.parametrize("environment", [{}, {"HABANA_PROFILE": "profile_api_light"}])
def test_what_the_bridge_itself_sets_is_no_clash(environment: dict[str, str]) -> None:
    """It sets its light profile where nothing is set."""
    _activities.check_variable(environment)


@pytest.mark.parametrize("value", ["0", "1", "my_template", ""])
def test_a_clash_says_what_to_unset(value: str) -> None:
    """Anything else keeps the card's work out of torch's traces."""
    with pytest.raises(RuntimeError, match=rf"HABANA_PROFILE must be unset .* got '{value}'.*`unset HABANA_PROFILE`"):
        _activities.check_variable({"HABANA_PROFILE": value})
