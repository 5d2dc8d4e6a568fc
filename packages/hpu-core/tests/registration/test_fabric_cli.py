"""Tests of `fabric run` on simulated devices, in programs of their own."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.registration import _cli

from .programs import FABRIC, Server

_framework = frameworks.current()

pytestmark = [
    pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"),
    pytest.mark.skipif(_framework.version < Version("2.4"), reason="Requires: Lightning 2.4, which has `fabric run`"),
]

# Prints the number of processes that each command line would start, or the error.
_PROGRAM = f"""
import os
from click.testing import CliRunner
from {FABRIC} import cli
from torch.distributed import run
def show(*arguments):
    cli.torchrun_arguments = None
    def main(arguments): cli.torchrun_arguments = arguments
    run.main = main
    result = CliRunner().invoke(cli._run, [*arguments, "script.py"])
    if result.exit_code == 0:
        print(cli.torchrun_arguments[0], os.environ.get("LT_ACCELERATOR"), os.environ.get("LT_STRATEGY"))
    else:
        print(result.exit_code, result.output.strip().splitlines()[-1])
open("script.py", "w").close()
show("--accelerator=hpu", "--devices=1", "--strategy=hpu_single")
show("--devices=auto")
show("--accelerator=cpu", "--devices=3")
show("--accelerator=hpu", "--devices=5")
import hpu_core
hpu_core.unregister()
show("--accelerator=hpu")
"""


def test_command_line_accepts_hpu(server: Callable[..., Server]) -> None:
    lines = server(HPU_SIM_DEVICES="2").output(_PROGRAM)

    assert lines[:4] == [
        "--nproc_per_node=1 hpu hpu_single",
        "--nproc_per_node=2 hpu hpu_single",
        "--nproc_per_node=3 cpu hpu_single",
        "2 Error: `devices` must be at most 2, the number of cards that can be used here, got 5",
    ]
    assert lines[4].startswith("2 Error: Invalid value for '--accelerator': 'hpu' is not one of 'cpu'")


def test_lightning_without_click_has_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click is a requirement of Lightning's command line alone."""
    monkeypatch.setitem(sys.modules, "click", None)

    _cli.extend_options(ModuleType("cli"), _framework.name)
