"""`Trainer(accelerator=HPUAccelerator(), devices=1)`, in processes that import things in one order or another."""

import importlib.util
from pathlib import Path

import pytest

from hpu_core import frameworks

from .programs import MODULE, QUIET, START, UNHOOKED, output

_PYTORCH = frameworks.current().pytorch().__name__
_FIT = MODULE.format(base="LightningModule") + f"fit(Trainer(accelerator=HPUAccelerator(), devices=1, {QUIET}))"
_OURS = "from hpu_core import HPUAccelerator"


@pytest.mark.parametrize("framework", ["lightning", "pytorch_lightning"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["hpu_core first", "Lightning first"])
def test_the_accelerator_is_enough(framework: str, ours_first: bool, tmp_path: Path) -> None:
    """The strategy for one card is chosen and trains on it, whatever was imported first."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"Requires: {framework}")
    imports = [f"from {framework} import LightningModule, Trainer", _OURS]
    program = START + "\n".join([*(reversed(imports) if ours_first else imports), _FIT])
    # Where both are installed, a program that uses hpu_core before it imports one of them has to say which.
    variables = {"HPU_CORE_FRAMEWORK": framework} if ours_first else {}
    # Where torch loads no backends, nothing of ours is there yet when Lightning comes first.
    if START and not ours_first:
        variables.update(UNHOOKED)

    assert output(program, tmp_path, HPU_SIM_DEVICES="1", **variables) == ["SingleHPUStrategy hpu"]


def test_a_simulator_that_starts_late_is_enough(tmp_path: Path) -> None:
    """The program may switch the simulator on itself, after all imports."""
    imports = f"from {_PYTORCH} import LightningModule, Trainer\n{_OURS}\nimport hpu_sim\nhpu_sim.activate()\n"

    assert output(imports + _FIT, tmp_path) == ["SingleHPUStrategy hpu"]


def test_autoload_off_leaves_lightning_alone(tmp_path: Path) -> None:
    """HPU_CORE_AUTOLOAD=0 gives Lightning's own connector, even after our accelerator was used."""
    program = f"{_OURS}\nfrom {_PYTORCH}.trainer import trainer\nprint(trainer._AcceleratorConnector.__mro__[1])"

    lines = output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_CORE_AUTOLOAD="0", **UNHOOKED)

    assert lines == ["<class 'object'>"]
