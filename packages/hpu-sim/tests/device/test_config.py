"""Validation of the simulated machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_sim.data import releases
from hpu_sim.device import config
from hpu_sim.device.config import SimConfig

_RELEASES = sorted(releases._table()[1])


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("", False), (None, False)])
def test_the_variable_makes_a_machine_strict(value: str | None, strict: bool) -> None:
    """And its description gives the same to a subprocess."""
    environment = {"HPU_SIM_DEVICES": "1"} | ({} if value is None else {"HPU_SIM_STRICT": value})

    machine = SimConfig.from_environment(environment)

    assert machine is not None
    assert machine.strict is strict
    assert SimConfig.from_environment(machine.environment()) == machine
    assert machine.describe().endswith("strict") is strict


@pytest.mark.parametrize("devices", [1, 64, "1", "64"])
def test_a_number_of_devices_is_accepted(devices: int | str) -> None:
    """Decimal text counts as a number."""
    assert SimConfig.create(devices).devices == int(devices)


@pytest.mark.parametrize("devices", ["two", "", " 2", "9" * 5000, "1.5", "-1", "0", "65", 0, -1, 65, True, 1.5, None])
def test_an_invalid_number_of_devices_is_named(devices: int | str) -> None:
    """The error has the argument, the rule and the value."""
    with pytest.raises(ValueError, match=r"`devices` must be a number from 1 to 64, got ") as caught:
        SimConfig.create(devices)

    assert str(caught.value).endswith(f"got {devices!r}")


@given(st.text("01269 -+.٣eé"))
def test_any_text_is_a_number_of_devices_or_an_error(text: str) -> None:
    """Text is either a number in range or a ValueError."""
    try:
        devices = SimConfig.create(text).devices
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017 - either outcome is right, for other texts
    else:
        assert str(devices) == text.lstrip("0")


@pytest.mark.parametrize("generation", ["GAUDI", "gaudi2", "Gaudi3"])
def test_a_generation_is_accepted_in_any_case(generation: str) -> None:
    """It is stored in the bridge's spelling."""
    assert SimConfig.create(generation=generation).generation == generation.upper()


@pytest.mark.parametrize("generation", ["GAUDI4", "", "HL-225"])
def test_an_unknown_generation_is_named(generation: str) -> None:
    """The error lists the generations."""
    with pytest.raises(ValueError, match=f"`generation` must be one of GAUDI, GAUDI2, GAUDI3, got {generation!r}"):
        SimConfig.create(generation=generation)


@pytest.mark.parametrize(("generation", "gibibytes"), [("GAUDI", 32), ("GAUDI2", 96), ("GAUDI3", 128)])
def test_the_generation_sets_the_memory(generation: str, gibibytes: int) -> None:
    assert SimConfig.create(generation=generation).memory_bytes == gibibytes * 2**30


@pytest.mark.parametrize(
    ("release", "variable", "lazy"),
    [
        ("1.18.0", None, True),
        ("1.21.0", None, False),
        ("1.21.0", "1", True),
        ("1.21.0", "2", True),
        ("1.18.0", "0", False),
    ],
)
def test_the_variable_overrides_the_mode_of_the_release(release: str, variable: str | None, lazy: bool) -> None:
    """PT_HPU_LAZY_MODE takes precedence: "0" selects eager mode, anything else lazy mode."""
    assert SimConfig.create(release=release, lazy=variable).lazy is lazy


@pytest.mark.parametrize("environment", [{}, {"HPU_SIM_DEVICES": ""}, {"HPU_SIM_GENERATION": "GAUDI9"}])
def test_an_environment_without_devices_means_no_machine(environment: dict[str, str]) -> None:
    """Without HPU_SIM_DEVICES the other variables are not validated."""
    assert SimConfig.from_environment(environment) is None


def test_an_environment_is_read() -> None:
    """Each variable sets the field of its name."""
    environment = {
        "HPU_SIM_DEVICES": "3",
        "HPU_SIM_GENERATION": "gaudi3",
        "HPU_SIM_RELEASE": "1.18.0",
        "PT_HPU_LAZY_MODE": "0",
    }

    assert SimConfig.from_environment(environment) == SimConfig.create(3, "GAUDI3", "1.18.0", lazy="0")


def test_an_empty_variable_means_the_default() -> None:
    environment = {"HPU_SIM_DEVICES": "1", "HPU_SIM_GENERATION": "", "HPU_SIM_RELEASE": ""}

    assert SimConfig.from_environment(environment) == SimConfig.create(1)


@given(
    devices=st.integers(1, config.MAX_DEVICES),
    generation=st.sampled_from(sorted(config.MEMORY_BYTES)),
    release=st.sampled_from(_RELEASES),
)
def test_the_environment_of_a_machine_describes_it(devices: int, generation: str, release: str) -> None:
    """A subprocess reads the machine of its parent."""
    machine = SimConfig.create(devices, generation, release)

    assert SimConfig.from_environment(machine.environment()) == machine
