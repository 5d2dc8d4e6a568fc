"""Programs that import the bridge before torch."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim import bridge_finder, children

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

_PATH = str(children.hook_folder())


@pytest.mark.parametrize("statement", ["import habana_frameworks.torch.core", "from torch_hpu import is_available"])
def test_the_bridge_can_come_first(statement: str, output_of: Callable[..., str]) -> None:
    """It brings torch and the device."""
    program = f"""
    {statement}
    import torch
    print(torch.hpu.device_count())
    """

    assert output_of(program, PYTHONPATH=_PATH, HPU_SIM_DEVICES="2") == "2"


def test_a_bad_machine_is_named(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """The error is about the value, not about a module that cannot be found."""
    result = run_python("import habana_frameworks.torch", PYTHONPATH=_PATH, HPU_SIM_DEVICES="two")

    assert result.returncode == 1
    assert "got 'two'" in result.stderr


def test_other_modules_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is there already, the bridge is too, or is not wanted."""
    monkeypatch.setattr(sys, "meta_path", [])
    bridge_finder.wait_for_bridge()

    assert importlib.util.find_spec("no_such_module") is None
    assert importlib.util.find_spec("torch_hpu_of_somebody") is None


def test_every_package_of_the_bridge_is_waited_for() -> None:
    """Whatever a program imports first."""
    folder = children.hook_folder().parent
    packages = {path.name for name in ("bridge", "bridge_from_1_19") for path in (folder / name).iterdir()}

    assert packages - {"__pycache__"} == bridge_finder.NAMES
