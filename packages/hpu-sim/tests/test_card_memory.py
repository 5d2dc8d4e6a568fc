"""Cards with less memory than their generation has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.config import MEMORY_BYTES, SimConfig, memory_variable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

_COMMAND: Final = "from hpu_sim.cli import main; main()"


def test_memory_can_be_lowered() -> None:
    """Text and bytes say how far."""
    assert SimConfig.create(memory="16GiB").memory_bytes == SimConfig.create(memory=16 << 30).memory_bytes == 16 << 30


def test_memory_cannot_be_raised() -> None:
    """A generation has what it has."""
    with pytest.raises(ValueError, match=r"`memory` must be .* to the card's 34359738368 bytes, got '96GiB'"):
        SimConfig.create(generation="GAUDI", memory="96GiB")


def test_a_machine_with_less_memory_is_another() -> None:
    """It counts when machines are compared, and the environment of its children describes it."""
    machine = SimConfig.create(memory="1GiB")

    assert machine != SimConfig.create()
    assert SimConfig.from_environment(machine.environment()) == machine


def test_the_whole_memory_is_not_spelled_out() -> None:
    """A child may still ask for a generation that has less."""
    environment = SimConfig.create(memory=MEMORY_BYTES["GAUDI2"]).environment() | {"HPU_SIM_GENERATION": "GAUDI"}

    assert SimConfig.from_environment(environment) == SimConfig.create(generation="GAUDI")


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("", None), ("1GiB", "1GiB")])
def test_the_variable_is_read(value: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty means unset."""
    monkeypatch.delenv("HPU_SIM_MEMORY", raising=False)
    if value is not None:
        monkeypatch.setenv("HPU_SIM_MEMORY", value)

    assert memory_variable() == expected


def test_a_full_card_is_torchs_error(output_of: Callable[..., str]) -> None:
    """It is a RuntimeError that names the limit, and what was there before stays usable."""
    program = """
    import torch
    kept = torch.ones(1000, device="hpu")
    try:
        torch.ones(10**6, device="hpu")
    except RuntimeError as error:
        print(type(error).__name__, str(error))
    print(kept.sum().item(), torch.hpu.memory_stats()["Limit"])
    """

    first, second = output_of(program, HPU_SIM_DEVICES="1", HPU_SIM_MEMORY="1MB", PT_HPU_LAZY_MODE="1").splitlines()

    assert first.startswith("OutOfMemoryError FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4000000 ")
    assert second == "1000.0 1000000"


def test_activation_takes_an_amount(output_of: Callable[..., str]) -> None:
    """The argument goes before the variable, and children are told."""
    program = """
    import hpu_sim, os
    hpu_sim.activate(memory="2GiB")
    import torch
    print(torch.hpu.mem_get_info()[1], os.environ["HPU_SIM_MEMORY"])
    """

    assert output_of(program, HPU_SIM_MEMORY="1GiB") == f"{2 << 30} {2 << 30}"


def test_the_banner_names_less_memory(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """A figure that is not the generation's must be seen."""
    program = "import hpu_sim; hpu_sim.activate(); import torch; torch.ones(1, device='hpu')"

    error = run_python(program, HPU_SIM_MEMORY="1kB").stderr

    assert "1 x GAUDI2 of 1000 bytes on SynapseAI" in error


def test_bad_text_ends_a_program_with_a_sentence(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """The variable's value is in it."""
    result = run_python("import torch", HPU_SIM_DEVICES="1", HPU_SIM_MEMORY="plenty")

    assert result.returncode == 1
    assert "got 'plenty'" in result.stderr


def test_the_command_takes_an_amount(start_python: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """`hpu-sim run --memory` lowers it for the script."""
    script = tmp_path / "script.py"
    script.write_text("import torch; print(torch.hpu.mem_get_info()[1])", encoding="utf-8")

    with start_python("-c", _COMMAND, "run", "--memory", "3GiB", script) as process:
        output, error = process.communicate(timeout=120)

    assert (process.returncode, output) == (0, f"{3 << 30}\n"), error


def test_the_command_refuses_bad_text(start_python: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """It is a mistake in the call."""
    script = tmp_path / "script.py"
    script.touch()

    with start_python("-c", _COMMAND, "run", script, HPU_SIM_MEMORY="plenty") as process:
        _, error = process.communicate(timeout=120)

    assert process.returncode == 2
    assert "`memory` must be a number of bytes" in error
