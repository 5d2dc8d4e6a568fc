"""Tests of names passed to Lightning, in programs that import nothing but Lightning, on simulated devices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks, plugins
from hpu_core.install_hints import install_command

from .programs import FABRIC, MODULE, PYTORCH, QUIET, UNHOOKED, Server, output

_framework = frameworks.current()

pytestmark = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends"
)

# Prints what Lightning constructs from each list of arguments, or the error that it raises.
_PROGRAM = f"""
import json, logging, warnings
warnings.simplefilter("ignore")
from {PYTORCH} import Trainer
from {FABRIC} import Fabric
logging.disable()
def construct(kind, **options):
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
"""

_DDP = """Plugin(
    strategies={
        "hpu_parallel": ClassPaths("peer_classes:Parallel", "peer_classes:FabricParallel"),
        "hpu_ddp": ClassPaths("peer_classes:Parallel", options={"find_unused_parameters": True}),
        "hpu_own": ClassPaths("peer_classes:WithOwnPrecision"),
        "hpu_notebook": ClassPaths("peer_classes:Parallel", "peer_classes:FabricParallel"),
    },
    default_multi_device="hpu_parallel",
    default_notebook="hpu_notebook",
    aliases={"ddp": "hpu_ddp", "ddp_no_name_of_fabrics": "hpu_parallel"},
    replacements={"DDPStrategy": "hpu_parallel"},
)"""
_PRECISION = """Plugin(
    precision=ClassPaths("peer_classes:TrainerPrecision", "peer_classes:FabricPrecision"),
    precisions=frozenset({"fp8"}),
    profilers={"hpu": "peer_classes:Profile"},
)"""
# Its name became that of Fabric's with Lightning 2.2.
_PRECISION_BASE = "Precision" if _framework.version >= Version("2.2") else "PrecisionPlugin"
_CLASSES = f"""
from {PYTORCH}.strategies import DDPStrategy
from {FABRIC}.strategies import DDPStrategy as FabricDDPStrategy
from {PYTORCH}.profilers import SimpleProfiler
from {PYTORCH}.plugins import {_PRECISION_BASE} as Base
from {FABRIC}.plugins import Precision as FabricBase
class FromLightning:
    @classmethod
    def from_lightning(cls, strategy): return cls(**strategy._ddp_kwargs)
class Parallel(FromLightning, DDPStrategy): pass
class FabricParallel(FromLightning, FabricDDPStrategy): pass
class Profile(SimpleProfiler): pass
class TrainerPrecision(Base):
    def __init__(self, precision): self.precision = precision
class FabricPrecision(FabricBase):
    def __init__(self, precision): self.precision = precision
class OwnPrecision(Base): pass
class WithOwnPrecision(DDPStrategy):
    def precision_plugin_for(self, precision): return OwnPrecision()
"""

Case = tuple[str, dict[str, Any]]
Construct = Callable[..., list[str]]


Start = Callable[..., Server]


@pytest.fixture(scope="module")
def construct(server: Start) -> Construct:
    """Construct all cases: `construct(*cases, devices=2, **variables)`."""

    def construct(*cases: Case, devices: int = 2, **variables: str) -> list[str]:
        program = f"{_PROGRAM}\nprint(json.dumps([construct(kind, **options) for kind, options in {cases!r}]))"
        results: list[str] = json.loads(server(HPU_SIM_DEVICES=str(devices), **variables).output(program)[-1])
        return results

    return construct


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory, make_plugin: Callable[[Path, str, str], None]) -> Path:
    """Folder with two distributions that have plugins."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "peer_classes.py").write_text(_CLASSES)
    make_plugin(folder, "hpu_ddp", _DDP)
    make_plugin(folder, "hpu_precision", _PRECISION)
    return folder


def test_one_device(construct: Construct) -> None:
    """The strategy for one device is the default, whether the accelerator is named or found."""
    cases: list[Case] = [
        ("Trainer", {"accelerator": "hpu", "devices": 1}),
        ("Trainer", {"accelerator": "hpu", "devices": "auto"}),
        ("Trainer", {"accelerator": "hpu", "devices": -1}),
        ("Trainer", {"accelerator": "auto"}),
        ("Trainer", {}),
        ("Trainer", {"strategy": "hpu_single"}),
        ("Fabric", {"accelerator": "hpu", "devices": 1}),
        ("Fabric", {}),
        ("Fabric", {"strategy": "hpu_single", "devices": "auto"}),
    ]
    results = construct(*cases, devices=1)

    names = ["SingleHPUStrategy hpu"] * 6 + ["FabricSingleHPUStrategy hpu"] * 3
    assert [" ".join(result.split()[::2]) for result in results] == names


def test_single_device_strategy_takes_one_of_several(construct: Construct) -> None:
    """As Lightning's own SingleDeviceStrategy, whatever `devices` is."""
    results = construct(
        ("Trainer", {"accelerator": "hpu", "strategy": "hpu_single"}),
        ("Fabric", {"accelerator": "hpu", "strategy": "hpu_single"}),
        ("Trainer", {"accelerator": "hpu", "strategy": "hpu_single", "devices": 2}),
    )

    names = ["SingleHPUStrategy", "FabricSingleHPUStrategy", "SingleHPUStrategy"]
    assert [result.split()[0] for result in results] == names


_LISTED = f"""
import logging
from {PYTORCH} import Trainer
from {FABRIC} import Fabric
from hpu_core import SingleHPUStrategy
logging.disable()
for devices in ([1], "1,", "2,0", [5]):
    for kind in (Trainer, Fabric):
        try:
            made = kind(accelerator="hpu", devices=devices, strategy="hpu_parallel")
        except Exception as error:
            print(type(error).__name__, error)
        else:
            print(made.strategy.num_processes, made.strategy.module_ids)
print(Trainer(accelerator="hpu", strategy=SingleHPUStrategy(), logger=False).strategy.module_ids)
"""


def test_listed_cards_are_selected(tmp_path: Path, plugin_folder: Path) -> None:
    """Indices count the entries of HABANA_VISIBLE_MODULES, as with Lightning's CUDA accelerator."""
    environment = {"HPU_CORE_FRAMEWORK": _framework.name, "PYTHONPATH": str(plugin_folder)}
    lines = output(_LISTED, tmp_path, HPU_SIM_DEVICES="4", HABANA_VISIBLE_MODULES="3,2,1", **environment)

    error = "`devices` must list cards from 0 to 2, the ones that can be used here, got [5]"
    assert lines == [
        *["1 (2,)"] * 4,
        *["2 (1, 3)"] * 2,
        *[f"MisconfigurationException {error}"] * 2,
        "None",
    ]


def test_cpu_is_left_to_lightning(construct: Construct) -> None:
    """Trainers and errors on the CPU are the same with and without registration."""
    cases: list[Case] = [
        ("Trainer", {"accelerator": "cpu", "devices": 1}),
        ("Trainer", {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}),
        ("Trainer", {"accelerator": "cpu", "precision": "bf16-mixed"}),
        ("Trainer", {"accelerator": "cpu", "precision": "int4"}),
        ("Trainer", {"accelerator": "cpu", "profiler": "simple"}),
        ("Trainer", {"accelerator": "cpu", "strategy": "no such strategy"}),
        ("Fabric", {"accelerator": "cpu", "devices": 1}),
        ("Fabric", {"accelerator": "cpu", "devices": 2}),
    ]
    results = construct(*cases)
    without = construct(*cases, HPU_CORE_AUTOLOAD="0", **UNHOOKED)

    # The end of Lightning's error lists all strategies, hpu-core's included.
    assert [result.partition("Example choices")[0].partition("HINT")[0] for result in results] == [
        result.partition("Example choices")[0].partition("HINT")[0] for result in without
    ]


@pytest.mark.skipif(bool(plugins.installed()), reason="Requires: an environment without the other packages")
def test_error_names_distribution_to_install(construct: Construct) -> None:
    results = construct(
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

    assert [result.rpartition(": ")[2] for result in results] == [install_command(f"hpu-{name}") for name in needed]
    assert all(result.startswith("ModuleNotFoundError: ") for result in results)


@pytest.mark.skipif(bool(plugins.installed()), reason="Requires: an environment without the other packages")
def test_float64_needs_no_other_package(construct: Construct) -> None:
    """No package can provide it."""
    results = construct(("Trainer", {"devices": 1, "precision": 64}), ("Fabric", {"devices": 1, "precision": 64}))

    assert [result.partition(":")[0] for result in results] == ["ValueError"] * 2
    assert all("a card stores and computes float64 as float32; pass '32-true'" in result for result in results)


@pytest.mark.skipif(
    _framework.version < Version("2.1"), reason="Requires: Lightning 2.1, which logs no line of its own"
)
def test_start_names_the_devices(server: Start) -> None:
    """One line, as Lightning has for GPUs."""
    program = f"""
import os
os.dup2(1, 2)
from {PYTORCH} import Trainer
Trainer(accelerator="hpu", devices=1, logger=False)
Trainer(accelerator="cpu", devices=1, logger=False)
"""
    lines = [line for line in server(HPU_SIM_DEVICES="2").output(program) if line.startswith("HPU available")]

    assert lines == [f"HPU available: True (2 x GAUDI2), using: {used} HPUs" for used in (1, 0)]


def test_plugins_provide_strategies(construct: Construct, plugin_folder: Path) -> None:
    """Several devices or nodes get the plugin's default strategy, and Lightning's names are aliases."""
    results = construct(
        ("Trainer", {"accelerator": "hpu"}),
        ("Trainer", {"accelerator": "hpu", "devices": 1, "num_nodes": 2}),
        ("Trainer", {"strategy": "hpu_ddp", "devices": 2}),
        ("Trainer", {"strategy": "ddp", "devices": 2}),
        ("Fabric", {"accelerator": "hpu", "devices": 2}),
        # Lightning registers more names for the Trainer than for Fabric.
        ("Fabric", {"accelerator": "hpu", "devices": 2, "strategy": "ddp_no_name_of_fabrics"}),
        PYTHONPATH=str(plugin_folder),
    )

    assert [result.split()[0] for result in results] == [*["Parallel"] * 4, *["FabricParallel"] * 2]


# Prints the strategies that replace instances of Lightning's, or the error.
_INSTANCES = f"""
import logging, pickle, warnings
from peer_classes import Parallel
warnings.simplefilter("ignore")
from {PYTORCH} import Trainer
from {PYTORCH}.strategies import DDPStrategy, SingleDeviceStrategy
from {FABRIC} import Fabric
from {FABRIC}.strategies import DDPStrategy as FabricDDPStrategy
logging.disable()
def show(kind, strategy, **options):
    try:
        made = kind(strategy=strategy, accelerator="hpu", **options).strategy
    except TypeError as error:
        print(error)
    else:
        print(type(made).__name__, made._ddp_kwargs)
show(Trainer, DDPStrategy(static_graph=True), devices=2, logger=False)
show(Fabric, FabricDDPStrategy(static_graph=True), devices=2)
class Own(DDPStrategy): pass
show(Trainer, Own(), devices=2, logger=False)
show(Trainer, SingleDeviceStrategy("cpu"), devices=1, logger=False)
"""


def test_instances_of_lightnings_strategies_are_replaced(server: Start, plugin_folder: Path) -> None:
    """The replacement keeps their arguments. A user's subclass, or a class without replacement, is an error."""
    machine = server(HPU_SIM_DEVICES="2", PYTHONPATH=str(plugin_folder))
    *replacements, own, error = machine.output(_INSTANCES)

    assert replacements == ["Parallel {'static_graph': True}", "FabricParallel {'static_graph': True}"]
    assert own == (
        "`strategy` must derive from peer_classes.Parallel on Gaudi, got Own, which derives from Lightning's "
        "DDPStrategy: write `class Own(peer_classes.Parallel)`"
    )
    assert error.startswith(
        "`strategy` must support Gaudi cards, got Lightning's SingleDeviceStrategy, which does not: pass "
        "`strategy='hpu_single'` or `strategy='hpu_parallel'`"
    )


def test_notebook_has_a_default_of_its_own(server: Start, plugin_folder: Path) -> None:
    program = f"""
import sys
sys.ps1 = ">>> "
from {PYTORCH} import Trainer
connector = Trainer(accelerator="hpu", devices=1, logger=False)._accelerator_connector
connector._parallel_devices *= 2
print(connector._choose_strategy())
"""
    machine = server(HPU_SIM_DEVICES="2", PYTHONPATH=str(plugin_folder))

    assert machine.output(program)[-1] == "hpu_notebook"


def test_plugins_provide_precision_and_profilers(construct: Construct, plugin_folder: Path) -> None:
    """A strategy with its own precision plugin keeps it, and a plugin's values of `precision` pass validation."""
    results = construct(
        ("Trainer", {"devices": 1, "precision": "bf16-mixed"}),
        ("Trainer", {"devices": 1, "precision": "fp8"}),
        ("Trainer", {"devices": 2, "precision": "bf16-mixed", "strategy": "hpu_own"}),
        ("Fabric", {"devices": 1, "precision": "fp8"}),
        ("Trainer", {"accelerator": "cpu", "precision": "fp8"}),
        ("Trainer", {"accelerator": "cpu", "profiler": "hpu"}),
        PYTHONPATH=str(plugin_folder),
    )

    assert [result.split()[1] for result in results[:4]] == [
        "TrainerPrecision",
        "TrainerPrecision",
        "OwnPrecision",
        "FabricPrecision",
    ]
    assert results[4:] == [
        "ValueError: `precision='fp8'` needs a Gaudi card, got CPUAccelerator: pass `accelerator='hpu'`",
        "Profile",
    ]


def test_trainer_can_be_pickled(server: Start) -> None:
    """Spawning launchers pickle it, and the new process may have an unpatched Lightning."""
    program = f"""
import pickle
from {PYTORCH} import Trainer
import hpu_core
text = pickle.dumps(Trainer(accelerator="hpu", logger=False)._accelerator_connector)
hpu_core.unregister()
print(type(pickle.loads(text)).__mro__[1].__name__, type(pickle.loads(text).strategy).__name__)
"""
    lines = server(HPU_SIM_DEVICES="1").output(program)

    assert lines[-1] == "object SingleHPUStrategy"


def test_unregister_restores_lightning(server: Start) -> None:
    """Connectors, functions and registries are the original ones again."""
    program = f"""
import torch, hpu_core
hpu_core.unregister()
import {FABRIC}.connector, {FABRIC}.fabric
from {PYTORCH} import Trainer
from {PYTORCH}.trainer import setup, trainer
from {PYTORCH}.strategies import StrategyRegistry
from {PYTORCH}.accelerators import AcceleratorRegistry
def state():
    return [setup._init_profiler, trainer._AcceleratorConnector, {FABRIC}.connector._Connector,
            {FABRIC}.fabric._Connector, dict(StrategyRegistry), dict(AcceleratorRegistry)]
before = state()
hpu_core.register()
Trainer(accelerator="hpu", logger=False)
registered = state()
hpu_core.unregister()
print([a is b or a == b for a, b in zip(before, registered)], [a is b or a == b for a, b in zip(before, state())])
"""
    lines = server(HPU_SIM_DEVICES="1").output(program)

    assert lines[-1] == f"{[False] * 6} {[True] * 6}"


@pytest.mark.skipif(_framework.version >= Version("2.1"), reason="Requires: Lightning 2.0")
def test_lightning_2_0_trains_without_hmp(tmp_path: Path) -> None:
    program = f"""
import {PYTORCH} as pl
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False, enable_checkpointing=False)
print(type(trainer.strategy).__name__, trainer.strategy.root_device.type)
"""

    assert output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.24.1") == ["SingleHPUStrategy hpu"]


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.skipif(_framework.version >= Version("2.1"), reason="Requires: Lightning 2.0")
def test_lightning_2_0_is_importable_after_the_simulator_started(autoload: str, tmp_path: Path) -> None:
    """hpu-core's classes import Lightning, whether or not they may register."""
    program = """
import torch, hpu_sim
hpu_sim.activate(release="1.24.1")
from hpu_core import HPUAccelerator
print(HPUAccelerator.is_available())
"""

    assert output(program, tmp_path, HPU_CORE_AUTOLOAD=autoload) == ["True"]


@pytest.mark.parametrize(
    "first",
    [
        f"import {PYTORCH}\nfrom hpu_core import HPUAccelerator",
        pytest.param(f"import {PYTORCH}", marks=pytest.mark.slow),
        pytest.param("import torch", marks=pytest.mark.slow),
        pytest.param("import sys", marks=pytest.mark.slow),
    ],
)
def test_hpu_is_a_name_after_activation(first: str, tmp_path: Path) -> None:
    """In a notebook the simulator starts after torch, and perhaps after Lightning and hpu-core."""
    program = f"""
{first}
import hpu_sim
hpu_sim.activate()
from hpu_core import HPUAccelerator
from {PYTORCH} import LightningModule, Trainer
{MODULE.format(base="LightningModule")}
for accelerator in ("hpu", HPUAccelerator()):
    fit(Trainer(accelerator=accelerator, devices=1, {QUIET}))
"""

    assert output(program, tmp_path) == ["SingleHPUStrategy hpu"] * 2


def test_lightnings_strategy_for_other_devices_is_refused_by_name(construct: Construct) -> None:
    [result] = construct(("Fabric", {"accelerator": "hpu", "strategy": "xla", "devices": 1}))

    assert result.startswith("TypeError: `strategy` must support Gaudi cards, got Lightning's strategy 'xla', which")
