"""Start-up of a Python process by `hpu_sim.pth`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_PTH: Final = Path(__file__).parents[2] / "hpu_sim.pth"
# What Python does with the .pth files of its site folders.
_START: Final = f"exec({_PTH.read_text(encoding='utf-8')!r})\n"


def test_the_last_line_of_an_error_is_that_of_the_simulator(
    run_new_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Errors of device backends are wrapped by torch in one that recommends to disable them."""
    result = run_new_python(f"{_START}import torch", HPU_SIM_DEVICES="abc")

    assert result.stderr.splitlines()[-1] == "ValueError: HPU_SIM_DEVICES must be a number from 1 to 64, got 'abc'"


def test_start_up_without_the_variable_imports_nothing(output_of_new_python: Callable[..., str]) -> None:
    """Every start of Python pays for it."""
    program = f"import os, sys\nbefore = set(sys.modules)\n{_START}print(*sorted(set(sys.modules) - before))"

    assert output_of_new_python(program) == ""


def test_start_up_twice_installs_one_hook(output_of_new_python: Callable[..., str]) -> None:
    """A subprocess of `hpu-sim run` has that of its site folder and of PYTHONPATH, and may need no torch."""
    count = f"{_START}import sys\ncount = len(sys.meta_path)\n{_START}"
    program = f"{count}print(len(sys.meta_path) - count, 'torch' in sys.modules)"

    assert output_of_new_python(program, HPU_SIM_DEVICES="1") == "0 False"


def test_the_wheel_has_the_file_in_the_site_folder(tmp_path: Path) -> None:
    """Python reads no .pth file elsewhere."""
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads(_PTH.with_name("pyproject.toml").read_text(encoding="utf-8"))

    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {_PTH.name: _PTH.name}


def test_a_site_folder_with_the_file_brings_the_device(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> None:
    """Python itself executes the line, and a program may import the bridge first."""
    (tmp_path / _PTH.name).write_bytes(_PTH.read_bytes())
    imports = "import habana_frameworks.torch, torch; print(torch.hpu.device_count())"
    program = f"import site; site.addsitedir({str(tmp_path)!r}); {imports}"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=fresh_environment({"HPU_SIM_DEVICES": "2"}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("2\n", "")
