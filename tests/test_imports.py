"""Tests that importing a package has no side effects, and of the packages' lazily loaded names."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import types
from contextlib import nullcontext

import pytest

from hpu_testing.fork_server import forks

# Packages that load a public name when it is first used; hpu-compat has tests of its own.
_NAMES = "bucketing compile core data ddp deepspeed export fsdp kernels launch precision profiler ray sim"
_LAZY = tuple(f"hpu_{name}" for name in _NAMES.split())

_FRAMEWORKS = frozenset({"lightning", "lightning_fabric", "pytorch_lightning"})
_HEAVY = frozenset({*_FRAMEWORKS, "click", "habana_frameworks", "pyhlml", "rich", "subprocess", "torch"})

# Statements, and modules that they must not load.
_STATEMENTS = {
    "bridge and framework of hpu-core": (
        "from hpu_core import bridge, frameworks, hccl, is_lazy, initialize_hccl",
        _FRAMEWORKS | {"habana_frameworks", "torch"},
    ),
    "strategies": (
        "from hpu_ddp import *; from hpu_deepspeed import *; from hpu_fsdp import *",
        frozenset({"habana_frameworks"}),
    ),
    "op lists of hpu-precision": (
        "from hpu_precision import OpLists; OpLists.create(bf16_ops=['linear'])",
        _FRAMEWORKS | {"habana_frameworks"},
    ),
    "plans of hpu-bucketing": (
        "from hpu_bucketing import BucketPlan; BucketPlan.from_lengths([1, 2], 1)",
        _FRAMEWORKS | {"habana_frameworks", "torch"},
    ),
    "hpu-info": ("import hpu_core.info", _FRAMEWORKS | {"click", "habana_frameworks", "rich", "torch"}),
    "hpu-doctor": ("import hpu_doctor.cli", _FRAMEWORKS | {"habana_frameworks", "torch"}),
    "hpu-launch": ("import hpu_launch.cli", _FRAMEWORKS | {"habana_frameworks", "rich", "torch"}),
    "hpu-export": ("import hpu_export.cli", _FRAMEWORKS | {"habana_frameworks", "torch"}),
    "report of hpu-profiler": (
        "import hpu_profiler.cli",
        _FRAMEWORKS | {"habana_frameworks", "torch"},
    ),
}

# Prints the modules that a statement loads, of some, and the environment variables that it changes.
_PROBE = """
import os, sys
before = dict(os.environ)
{statement}
print(*sorted(name for name in {modules} if name in sys.modules))
print(*(name for name in set(before) | set(os.environ) if before.get(name) != os.environ.get(name)))
"""


def _effects(statement: str, *, may_load_torch: bool = False) -> tuple[set[str], set[str]]:
    """Run a statement in a new interpreter; return the heavy modules that it loads, and the variables that it sets.

    One that may load torch runs in a fork that has loaded it.
    """
    program = _PROBE.format(statement=statement, modules=sorted(_HEAVY))
    # coverage would import more modules than the statement.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    with forks() if may_load_torch else nullcontext():
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    modules, variables = done.stdout.splitlines()
    return set(modules.split()), set(variables.split())


@pytest.mark.parametrize("package", [*_LAZY, "hpu_doctor"])
def test_import_has_no_side_effects(package: str) -> None:
    """Importing loads no torch, Lightning, bridge or subprocess, and sets no environment variable."""
    assert _effects(f"import {package}") == (set(), set())


def test_import_of_plugins_has_no_side_effects() -> None:
    """Importing the modules of the hpu_core.plugins entry points loads no torch, Lightning or bridge."""
    entries = importlib.metadata.entry_points(group="hpu_core.plugins")

    assert entries.names
    assert _effects(f"import {', '.join(entry.module for entry in entries)}") == (set(), set())


@pytest.mark.parametrize("name", _STATEMENTS)
def test_optional_modules_are_not_loaded(name: str) -> None:
    """Code that works without a framework or a bridge loads neither, and sets no variable that a Gaudi reads."""
    statement, absent = _STATEMENTS[name]
    modules, variables = _effects(statement, may_load_torch="torch" not in absent)

    assert not modules & absent
    assert not [variable for variable in variables if variable.startswith(("HABANA", "HLS", "MASTER", "PT_HPU"))]


def test_effects_are_found() -> None:
    """The tests above can fail."""
    assert _effects("import hpu_core, subprocess; os.environ['MASTER_PORT'] = '1'") == ({"subprocess"}, {"MASTER_PORT"})


@pytest.mark.parametrize("package", _LAZY)
def test_all_is_sorted_and_complete(package: str) -> None:
    """Other names of the package are underscored, or modules that were imported."""
    module = importlib.import_module(package)
    names = {name for name in dir(module) if not name.startswith("_")} - {"Any", "TYPE_CHECKING", "annotations"}
    public = {name for name in names if not isinstance(getattr(module, name), types.ModuleType)}

    assert module.__all__ == sorted({*public, "__version__"})


@pytest.mark.parametrize("package", _LAZY)
def test_public_names_can_be_loaded(package: str) -> None:
    """Each name of `__all__` can be loaded, and `dir` lists it before."""
    module = importlib.import_module(package)
    names = set(dir(module))

    assert set(module.__all__) <= names
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert not hasattr(module, "nothing")
