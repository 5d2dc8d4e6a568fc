"""Tests of errors for names of Gaudi on a machine without a device, in programs of their own."""

from pathlib import Path

import pytest
import torch
from packaging.version import Version

from _hpu_core_probe import maybe_has_hpu
from hpu_core import bridge, frameworks
from hpu_core.registration import _hints

from .programs import output

_framework = frameworks.current()
_PYTORCH = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]
_FABRIC = {"lightning": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}[_framework.name]

pytestmark = [
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
    pytest.mark.skipif(maybe_has_hpu() or bridge.is_installed(), reason="Requires: a machine without a card"),
]

# Prints the error of each Trainer and Fabric, or the type of its accelerator.
_PROGRAM = f"""
from {_PYTORCH} import Trainer
from {_FABRIC} import Fabric
def show(kind, **options):
    try:
        made = kind(**options)
        print(type(made.strategy.accelerator).__name__)
    except Exception as error:
        print(type(error).__name__, str(error).replace(chr(10), " "))
def show_all():
    for kind in (Trainer, Fabric):
        show(kind, accelerator="hpu", devices=1)
        show(kind, accelerator="hpu", devices=1, strategy="hpu_single")
        show(kind, strategy="hpu_single")
        show(kind, accelerator="cpu", strategy="no such strategy")
        show(kind, devices=1)
"""


def _shown(program: str, folder: Path, **variables: str) -> list[str]:
    return output(program, folder, HPU_CORE_FRAMEWORK=_framework.name, **variables)


@pytest.mark.parametrize(
    "registered", [pytest.param(False, marks=pytest.mark.slow), True], ids=["without registration", "with registration"]
)
def test_error_names_the_tools(registered: bool, tmp_path: Path) -> None:
    """Only errors for names of Gaudi do, and "auto" trains on the CPU."""
    register = "import hpu_core\nhpu_core.register()\n" if registered else ""
    lines = _shown(f"{_PROGRAM}\n{register}show_all()", tmp_path)

    for shown in (lines[:5], lines[5:]):
        assert [line.endswith(_hints.HINT) for line in shown] == [True, True, True, False, False], lines
        assert shown[4] == "CPUAccelerator"


def test_hints_import_no_discovery(tmp_path: Path) -> None:
    """Every program for the CPU would pay for it."""
    program = f"""
import sys, {_PYTORCH}, {_FABRIC}
print("hpu_core.registration._hints" in sys.modules)
print(*(name for name in sys.modules if name.startswith(("hpu_core.discovery", "hpu_core.throughput"))))
"""
    assert _shown(program, tmp_path) == ["True", ""]


@pytest.mark.slow
def test_variable_switches_hints_off(tmp_path: Path) -> None:
    lines = _shown(f"{_PROGRAM}\nshow(Fabric, strategy='hpu_single')", tmp_path, HPU_CORE_AUTOLOAD="0")

    assert _hints.HINT not in lines[0]


def test_unregister_restores_imported_references(tmp_path: Path) -> None:
    """`trainer.trainer` has one of its own, and imported it from the patched module."""
    program = f"""
import hpu_core
hpu_core.register()
import {_PYTORCH}.trainer.trainer as module
replacement = module._AcceleratorConnector
hpu_core.unregister()
print(module._AcceleratorConnector in replacement.__bases__)
"""
    assert _shown(program, tmp_path) == ["True"]
