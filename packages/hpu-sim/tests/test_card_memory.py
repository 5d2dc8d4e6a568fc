"""Devices with less memory than their generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpu_sim.device.config import MEMORY_BYTES, SimConfig
from hpu_sim.process import activation

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("forks")


def test_memory_can_be_lowered() -> None:
    """Text and bytes mean the same."""
    assert SimConfig.create(memory="16GiB").memory_bytes == SimConfig.create(memory=16 << 30).memory_bytes == 16 << 30


def test_memory_cannot_be_raised() -> None:
    """The memory of the generation is the maximum."""
    with pytest.raises(ValueError, match=r"`memory` must be .* to the card's 34359738368 bytes, got '96GiB'"):
        SimConfig.create(generation="GAUDI", memory="96GiB")


def test_a_machine_with_less_memory_is_a_different_one() -> None:
    """It compares unequal, and its environment describes it."""
    machine = SimConfig.create(memory="1GiB")

    assert machine != SimConfig.create()
    assert SimConfig.from_environment(machine.environment()) == machine


def test_the_full_memory_is_not_in_the_environment() -> None:
    """A subprocess may select a generation that has less."""
    environment = SimConfig.create(memory=MEMORY_BYTES["GAUDI2"]).environment() | {"HPU_SIM_GENERATION": "GAUDI"}

    assert SimConfig.from_environment(environment) == SimConfig.create(generation="GAUDI")


@pytest.mark.parametrize(("value", "expected"), [(None, 96 << 30), ("", 96 << 30), ("1GiB", 1 << 30)])
def test_the_variable_is_read(value: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as unset, also for `activate`, which here starts nothing."""
    machines: list[SimConfig] = []
    monkeypatch.setattr(activation, "_start", machines.append)
    monkeypatch.delenv("HPU_SIM_MEMORY", raising=False)
    if value is not None:
        monkeypatch.setenv("HPU_SIM_MEMORY", value)

    activation.activate()

    assert [each.memory_bytes for each in machines] == [expected]


def test_activation_takes_a_memory_size(output_of: Callable[..., str]) -> None:
    """The argument takes precedence over the variable, and subprocesses inherit it."""
    program = """
    import hpu_sim, os
    hpu_sim.activate(memory="2GiB")
    import torch
    print(torch.hpu.mem_get_info()[1], os.environ["HPU_SIM_MEMORY"])
    """

    assert output_of(program, HPU_SIM_MEMORY="1GiB") == f"{2 << 30} {2 << 30}"


def test_the_banner_names_less_memory(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    program = "import hpu_sim; hpu_sim.activate(); import torch; torch.ones(1, device='hpu')"

    error = run_python(program, HPU_SIM_MEMORY="1kB").stderr

    assert "1 x GAUDI2 of 1000 bytes on SynapseAI" in error
