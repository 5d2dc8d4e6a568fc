"""Tests of the side effects of importing the packages."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

import hpu_compat
import lightning_habana
from hpu_compat import _names

from .conftest import Run
from .interface import MODULES

_PEERS = ("hpu_ddp", "hpu_deepspeed", "hpu_fsdp", "hpu_precision", "hpu_profiler")
_HEAVY = (*_PEERS, "torch", "lightning", "pytorch_lightning", "lightning_fabric", "habana_frameworks", "subprocess")

# Imports modules, and prints the heavy ones that are loaded and the changed environment variables.
_PROBE = """
import importlib, os, sys
before = dict(os.environ)
for name in {modules}:
    importlib.import_module(name)
print(*(name for name in {heavy} if name in sys.modules))
print(*(name for name in set(before) | set(os.environ) if before.get(name) != os.environ.get(name)))
"""

# Uses names of the archived package, and prints the loaded peers after each.
_STEPS = """
import sys
def loaded():
    print(*sorted(name for name in {peers} if name in sys.modules))
from lightning_habana.pytorch.accelerator import HPUAccelerator
loaded()
from lightning_habana.pytorch.plugins.precision import HPUPrecisionPlugin
loaded()
from lightning_habana.pytorch.strategies import HPUParallelStrategy
loaded()
from lightning_habana.pytorch.profiler.profiler import HPUProfiler
loaded()
"""


def test_importing_any_module_has_no_side_effect(run: Run) -> None:
    """It imports no torch, Lightning, bridge, peer or subprocess, and the environment is unchanged."""
    assert run(_PROBE.format(modules=list(MODULES), heavy=_HEAVY)) == ["", ""]


def test_autoload_imports_only_small_modules(run: Run) -> None:
    """`import torch` calls it on machines with an HPU or the simulator."""
    program = _PROBE.format(modules=["hpu_compat"], heavy=_HEAVY) + "hpu_compat = sys.modules['hpu_compat']\n"
    own = "print(*sorted(name for name in sys.modules if name.startswith(('hpu_compat', 'lightning_habana'))))"
    lines = run(program + "hpu_compat.autoload()\n" + own, HPU_SIM_DEVICES="1")

    assert lines[:2] == ["", ""]
    own_modules = ["__about__", "_finder", "_legacy_names", "_names"]
    assert lines[2].split() == ["hpu_compat", *(f"hpu_compat.{name}" for name in own_modules)]


def test_each_name_imports_only_its_own_package(run: Run) -> None:
    lines = run(_STEPS.format(peers=_PEERS))

    assert lines == [
        "",
        "hpu_precision",
        "hpu_ddp hpu_precision",
        "hpu_ddp hpu_precision hpu_profiler",
    ]


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in MODULES} - {""}))
def test_submodules_are_attributes_of_their_package(module: str) -> None:
    """The archived package imported all submodules eagerly, and programs rely on it."""
    package = importlib.import_module(module)
    submodules = [name for name in MODULES if name.rpartition(".")[0] == module and "__" not in name]

    assert all(isinstance(getattr(package, name.rpartition(".")[2]), ModuleType) for name in submodules)


def test_version_is_that_of_the_interface() -> None:
    """The local version identifies this distribution."""
    assert lightning_habana.__version__ == "1.7.0+hpu.compat"
    assert hpu_compat.__version__ == "0.1.0"


def test_modules_are_those_of_the_archived_package() -> None:
    """Those that only re-export names are no files."""
    root = Path(lightning_habana.__path__[0])
    files = [file.relative_to(root.parent).with_suffix("") for file in root.rglob("*.py")]
    found = {".".join(file.parts).removesuffix(".__init__") for file in files}

    assert sorted(found | {f"lightning_habana.{name}" for name in _names.EXPORTED}) == sorted(MODULES)
