"""Tests of errors for names of Gaudi on a machine without a device, in programs of their own."""

from collections.abc import Callable

import pytest
import torch
from packaging.version import Version

from _hpu_core_probe import maybe_has_hpu
from hpu_core import bridge
from hpu_core.registration import _hints

from .programs import FABRIC, PYTORCH, Server

pytestmark = [
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
    pytest.mark.skipif(maybe_has_hpu() or bridge.is_installed(), reason="Requires: a machine without a card"),
]

# Prints the error of each Trainer and Fabric, or the type of its accelerator.
_PROGRAM = f"""
from {PYTORCH} import Trainer
from {FABRIC} import Fabric
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


Start = Callable[..., Server]


@pytest.mark.parametrize("registered", [False, True], ids=["without registration", "with registration"])
def test_error_names_the_tools(registered: bool, server: Start) -> None:
    """Only errors for names of Gaudi do, and "auto" trains on the CPU."""
    register = "import hpu_core\nhpu_core.register()\n" if registered else ""
    lines = server().output(f"{_PROGRAM}\n{register}show_all()")

    for shown in (lines[:5], lines[5:]):
        assert [line.endswith(_hints.HINT) for line in shown] == [True, True, True, False, False], lines
        assert shown[4] == "CPUAccelerator"


def test_hints_import_no_discovery(server: Start) -> None:
    """Every program for the CPU would pay for it."""
    program = f"""
import sys, {PYTORCH}, {FABRIC}
print("hpu_core.registration._hints" in sys.modules)
print(*(name for name in sys.modules if name.startswith(("hpu_core.discovery", "hpu_core.throughput"))))
"""
    assert server().output(program) == ["True", ""]


@pytest.mark.slow
def test_variable_switches_hints_off(server: Start) -> None:
    lines = server(HPU_CORE_AUTOLOAD="0").output(f"{_PROGRAM}\nshow(Fabric, strategy='hpu_single')")

    assert _hints.HINT not in lines[0]


def test_unregister_restores_imported_references(server: Start) -> None:
    """`trainer.trainer` has one of its own, and imported it from the patched module."""
    program = f"""
import hpu_core
hpu_core.register()
import {PYTORCH}.trainer.trainer as module
replacement = module._AcceleratorConnector
hpu_core.unregister()
print(module._AcceleratorConnector in replacement.__bases__)
"""
    assert server().output(program) == ["True"]
