"""What Lightning does with names where nothing of ours is imported, on simulated cards."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.registration import plugins

from .programs import MODULE, QUIET, UNHOOKED, make_peer, output

_framework = frameworks.current()
_PYTORCH = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]
_FABRIC = {"lightning": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}[_framework.name]

pytestmark = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"
)

# Prints, for each set of arguments that it is given, what Lightning makes of them or why it refuses.
_ASK = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
from {trainer} import Trainer
from {fabric} import Fabric
logging.disable()
def ask(kind, **options):
    try:
        if kind == "Fabric":
            made = Fabric(**options)
            precision = made._connector.precision
        else:
            made = Trainer(**options, logger=False, enable_checkpointing=False, enable_progress_bar=False)
            precision = made.precision_plugin
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
    if options.get("profiler"):
        return type(made.profiler).__name__
    return " ".join([type(made.strategy).__name__, type(precision).__name__, made.strategy.root_device.type])
print(json.dumps([ask(kind, **options) for kind, options in json.loads('''{questions}''')]))
"""

_DDP = """Plugin(
    strategies={
        "hpu_parallel": ClassPaths("peer_classes:Parallel", "peer_classes:FabricParallel"),
        "hpu_ddp": ClassPaths("peer_classes:Parallel", options={"find_unused_parameters": True}),
        "hpu_own": ClassPaths("peer_classes:WithOwnPrecision"),
    },
    default_multi_device="hpu_parallel",
    aliases={"ddp": "hpu_ddp"},
)"""
_PRECISION = """Plugin(
    precision=ClassPaths("peer_classes:TrainerPrecision", "peer_classes:FabricPrecision"),
    precisions=frozenset({"fp8"}),
    profilers={"hpu": "peer_classes:Profile"},
)"""
# Its name became that of Fabric's with Lightning 2.2.
_PRECISION_BASE = "Precision" if _framework.version >= Version("2.2") else "PrecisionPlugin"
_CLASSES = f"""
from {_PYTORCH}.strategies import DDPStrategy
from {_FABRIC}.strategies import DDPStrategy as FabricDDPStrategy
from {_PYTORCH}.profilers import SimpleProfiler
from {_PYTORCH}.plugins import {_PRECISION_BASE} as Base
from {_FABRIC}.plugins import Precision as FabricBase
class Parallel(DDPStrategy): pass
class FabricParallel(FabricDDPStrategy): pass
class Profile(SimpleProfiler): pass
class TrainerPrecision(Base):
    def __init__(self, precision): self.precision = precision
class FabricPrecision(FabricBase):
    def __init__(self, precision): self.precision = precision
class OwnPrecision(Base): pass
class WithOwnPrecision(DDPStrategy):
    def precision_plugin_for(self, precision): return OwnPrecision()
"""

Question = tuple[str, dict[str, Any]]


def _ask(folder: Path, *questions: Question, cards: int = 2, **variables: str) -> list[str]:
    """Ask all questions in one process."""
    program = _ASK.format(trainer=_PYTORCH, fabric=_FABRIC, questions=json.dumps(questions))
    environment = {"HPU_CORE_FRAMEWORK": _framework.name, "HPU_SIM_DEVICES": str(cards), **variables}
    answers: list[str] = json.loads(output(program, folder, **environment)[-1])
    return answers


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    """A folder for the path with two distributions that have plugins."""
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "peer_classes.py").write_text(_CLASSES)
    make_peer(folder, "hpu_ddp", _DDP)
    make_peer(folder, "hpu_precision", _PRECISION)
    return folder


def test_one_card(tmp_path: Path) -> None:
    """Named, or found where nothing is named, one card gets the strategy for one card."""
    one: list[Question] = [
        ("Trainer", {"accelerator": "hpu", "devices": 1}),
        ("Trainer", {"accelerator": "hpu", "devices": "auto"}),
        ("Trainer", {"accelerator": "hpu", "devices": -1}),
        ("Trainer", {"accelerator": "auto"}),
        ("Trainer", {}),
        ("Trainer", {"strategy": "hpu_single"}),
    ]
    answers = _ask(tmp_path, *one, cards=1)

    assert {" ".join(answer.split()[::2]) for answer in answers} == {"SingleHPUStrategy hpu"}


def test_one_card_with_fabric(tmp_path: Path) -> None:
    """Fabric decides as the Trainer does."""
    answers = _ask(
        tmp_path,
        ("Fabric", {"accelerator": "hpu", "devices": 1}),
        ("Fabric", {}),
        ("Fabric", {"strategy": "hpu_single", "devices": "auto"}),
        cards=1,
    )

    assert answers == ["FabricSingleHPUStrategy Precision hpu"] * 3


def test_other_accelerators_are_lightnings_affair(tmp_path: Path) -> None:
    """What is asked of the CPU is what Lightning makes of it."""
    cpu: list[Question] = [
        ("Trainer", {"accelerator": "cpu", "devices": 1}),
        ("Trainer", {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}),
        ("Trainer", {"accelerator": "cpu", "precision": "bf16-mixed"}),
        ("Trainer", {"accelerator": "cpu", "precision": "int4"}),
        ("Trainer", {"accelerator": "cpu", "profiler": "simple"}),
        ("Trainer", {"accelerator": "cpu", "strategy": "no such strategy"}),
        ("Fabric", {"accelerator": "cpu", "devices": 1}),
        ("Fabric", {"accelerator": "cpu", "devices": 2}),
    ]
    answers = _ask(tmp_path, *cpu, HPU_CORE_AUTOLOAD="1")
    without = _ask(tmp_path, *cpu, HPU_CORE_AUTOLOAD="0", **UNHOOKED)

    # Lightning lists the strategies that there are, ours among them.
    assert [answer.partition("Example choices")[0].partition("HINT")[0] for answer in answers] == [
        answer.partition("Example choices")[0].partition("HINT")[0] for answer in without
    ]


@pytest.mark.skipif(bool(plugins.installed()), reason="Requires: an environment without the other packages")
def test_what_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    """Each says what to install."""
    answers = _ask(
        tmp_path,
        ("Trainer", {"accelerator": "hpu"}),
        ("Trainer", {"accelerator": "hpu", "devices": 1, "num_nodes": 2}),
        ("Trainer", {"strategy": "hpu_ddp"}),
        ("Trainer", {"strategy": "ddp"}),
        ("Trainer", {"strategy": "hpu_deepspeed_stage_2"}),
        ("Trainer", {"devices": 1, "precision": "bf16-mixed"}),
        ("Trainer", {"accelerator": "cpu", "profiler": "hpu"}),
        ("Fabric", {"accelerator": "hpu"}),
        ("Fabric", {"devices": 1, "precision": "bf16-mixed"}),
    )
    needed = ["ddp", "ddp", "ddp", "ddp", "deepspeed", "precision", "profiler", "ddp", "precision"]

    assert [answer.rpartition(": pip install ")[2] for answer in answers] == [f"hpu-{name}" for name in needed]
    assert all(answer.startswith("ModuleNotFoundError: ") for answer in answers)


def test_plugins_bring_strategies(tmp_path: Path, peers: Path) -> None:
    """Several cards get the strategy that a plugin has for them, and Lightning's names mean the plugin's."""
    answers = _ask(
        tmp_path,
        ("Trainer", {"accelerator": "hpu"}),
        ("Trainer", {"accelerator": "hpu", "devices": 1, "num_nodes": 2}),
        ("Trainer", {"strategy": "hpu_ddp", "devices": 2}),
        ("Trainer", {"strategy": "ddp", "devices": 2}),
        ("Fabric", {"accelerator": "hpu", "devices": 2}),
        PYTHONPATH=str(peers),
    )

    assert [answer.split()[0] for answer in answers] == [*["Parallel"] * 4, "FabricParallel"]


def test_plugins_bring_precision_and_profilers(tmp_path: Path, peers: Path) -> None:
    """Precision goes to the plugin, unless the strategy has its own; values that only a plugin knows pass Lightning."""
    answers = _ask(
        tmp_path,
        ("Trainer", {"devices": 1, "precision": "bf16-mixed"}),
        ("Trainer", {"devices": 1, "precision": "fp8"}),
        ("Trainer", {"devices": 2, "precision": "bf16-mixed", "strategy": "hpu_own"}),
        ("Fabric", {"devices": 1, "precision": "fp8"}),
        ("Trainer", {"accelerator": "cpu", "precision": "fp8"}),
        ("Trainer", {"accelerator": "cpu", "profiler": "hpu"}),
        PYTHONPATH=str(peers),
    )

    assert [answer.split()[1] for answer in answers[:4]] == [
        "TrainerPrecision",
        "TrainerPrecision",
        "OwnPrecision",
        "FabricPrecision",
    ]
    assert answers[4:] == [
        "ValueError: `precision='fp8'` needs a Gaudi card, got CPUAccelerator: pass `accelerator='hpu'`",
        "Profile",
    ]


def test_a_name_is_enough_to_train(tmp_path: Path) -> None:
    """`Trainer(accelerator="hpu")` trains on the card."""
    imports = f"from {_PYTORCH} import LightningModule, Trainer\n"
    program = imports + MODULE.format(base="LightningModule") + f"fit(Trainer(accelerator='hpu', {QUIET}))"
    lines = output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_CORE_FRAMEWORK=_framework.name)

    assert lines[-1] == "SingleHPUStrategy hpu"


def test_fabric_trains(tmp_path: Path) -> None:
    """`Fabric(accelerator="hpu")` trains on the card; in lazy mode a step is a graph for each call of the strategy."""
    program = f"""
import torch
from {_FABRIC} import Fabric
fabric = Fabric(accelerator="hpu", devices=1)
fabric.launch()
module = torch.nn.Linear(4, 1)
module, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
batch = fabric.to_device(torch.ones(2, 4))
import hpu_sim
def step():
    optimizer.zero_grad()
    loss = module(batch).sum()
    fabric.backward(loss)
    optimizer.step()
    return loss
step()
hpu_sim.reset_stats()
loss = step()
print(loss.device.type, hpu_sim.stats()["graphs"])
"""
    variables = {"HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "1", "HPU_CORE_FRAMEWORK": _framework.name}

    assert output(program, tmp_path, **variables)[-1] == "hpu 2"


def test_the_trainer_can_be_pickled(tmp_path: Path) -> None:
    """Launchers that spawn processes send it to them, where it may meet a Lightning that nothing was done to."""
    program = f"""
import pickle
from {_PYTORCH} import Trainer
from hpu_core import registration
text = pickle.dumps(Trainer(accelerator="hpu", logger=False)._accelerator_connector)
registration.remove()
print(type(pickle.loads(text)).__mro__[1].__name__, type(pickle.loads(text).strategy).__name__)
"""
    lines = output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_CORE_FRAMEWORK=_framework.name)

    assert lines[-1] == "object SingleHPUStrategy"


def test_removal_leaves_lightning_as_it_was(tmp_path: Path) -> None:
    """Connectors, profilers and registries are put back."""
    program = f"""
import torch
from hpu_core import registration
registration.remove()
import {_FABRIC}.connector, {_FABRIC}.fabric
from {_PYTORCH} import Trainer
from {_PYTORCH}.trainer import setup, trainer
from {_PYTORCH}.strategies import StrategyRegistry
from {_PYTORCH}.accelerators import AcceleratorRegistry
def state():
    return [setup._init_profiler, trainer._AcceleratorConnector, {_FABRIC}.connector._Connector,
            {_FABRIC}.fabric._Connector, dict(StrategyRegistry), dict(AcceleratorRegistry)]
before = state()
registration.install()
Trainer(accelerator="hpu", logger=False)
taught = state()
registration.remove()
print([a is b or a == b for a, b in zip(before, taught)], [a is b or a == b for a, b in zip(before, state())])
"""
    lines = output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_CORE_FRAMEWORK=_framework.name, **UNHOOKED)

    assert lines[-1] == f"{[False] * 6} {[True] * 6}"
