"""Tests of `Trainer(accelerator=HPUAccelerator(), devices=1)`, for each order of imports."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from .programs import MODULE, PYTORCH, QUIET, START, UNHOOKED, Server, output

_FIT = MODULE.format(base="LightningModule") + f"fit(Trainer(accelerator=HPUAccelerator(), devices=1, {QUIET}))"
_IMPORT = "from hpu_core import HPUAccelerator"


@pytest.mark.parametrize(
    ("framework", "hpu_core_first"),
    [
        pytest.param("lightning", False, id="lightning first"),
        pytest.param("pytorch_lightning", True, id="before pytorch_lightning"),
        pytest.param("lightning", True, marks=pytest.mark.slow, id="before lightning"),
        pytest.param("pytorch_lightning", False, marks=pytest.mark.slow, id="pytorch_lightning first"),
    ],
)
def test_accelerator_selects_strategy(framework: str, hpu_core_first: bool, tmp_path: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"Requires: {framework}")
    imports = [f"from {framework} import LightningModule, Trainer", _IMPORT]
    program = START + "\n".join([*(reversed(imports) if hpu_core_first else imports), _FIT])
    # With both installed, a program that uses hpu_core before it imports either must select one.
    variables = {"HPU_CORE_FRAMEWORK": framework} if hpu_core_first else {}
    # Without backends loaded by torch, Lightning is imported before any hook is installed.
    if START and not hpu_core_first:
        variables.update(UNHOOKED)

    assert output(program, tmp_path, HPU_SIM_DEVICES="1", **variables) == ["SingleHPUStrategy hpu"]


def test_disabled_autoload_keeps_connector_of_lightning(server: Callable[..., Server]) -> None:
    program = f"""
{_IMPORT}
HPUAccelerator()
from {PYTORCH}.trainer import trainer
print(trainer._AcceleratorConnector.__mro__[1])
"""
    machine = server(HPU_SIM_DEVICES="2", HPU_CORE_AUTOLOAD="0", **UNHOOKED)

    assert machine.output(program) == ["<class 'object'>"]
