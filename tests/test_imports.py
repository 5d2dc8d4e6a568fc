"""What importing a package does to a process: nothing; and how its public names are found."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import types

import pytest

# Those that fetch a public name from its module when it is first used; hpu-sim and hpu-compat have tests of their own.
_LAZY = ("hpu_core", "hpu_ddp", "hpu_deepspeed", "hpu_precision", "hpu_profiler")

_FRAMEWORKS = frozenset({"lightning", "lightning_fabric", "pytorch_lightning"})
_HEAVY = frozenset({*_FRAMEWORKS, "habana_frameworks", "pyhlml", "subprocess", "torch"})

# What packages promise beyond that: a statement, and what it does not load.
_PROMISES = {
    "hpu-core's seams": (
        "from hpu_core import bridge, frameworks, hccl, is_lazy, initialize_hccl",
        _FRAMEWORKS | {"habana_frameworks", "torch"},
    ),
    "hpu-ddp's strategies": ("from hpu_ddp import *", frozenset({"habana_frameworks"})),
    "hpu-deepspeed's strategies": ("from hpu_deepspeed import *", frozenset({"habana_frameworks"})),
    "hpu-precision's op lists": (
        "from hpu_precision import OpLists; OpLists.create(bf16_ops=['linear'])",
        _FRAMEWORKS | {"habana_frameworks"},
    ),
    "hpu-profiler's report": (
        "import hpu_profiler.cli, hpu_profiler.report.html",
        _FRAMEWORKS | {"habana_frameworks", "torch"},
    ),
}

# Prints which of some modules a statement loads, and which of the variables that a Gaudi reads it changes.
_PROBE = """
import os, sys
before = dict(os.environ)
{statement}
print(*sorted(name for name in {modules} if name in sys.modules))
print(*(name for name in set(before) | set(os.environ) if before.get(name) != os.environ.get(name)))
"""


def _effects(statement: str) -> tuple[set[str], set[str]]:
    """Run a statement in a fresh interpreter; return the heavy modules it loads and the variables it changes."""
    program = _PROBE.format(statement=statement, modules=sorted(_HEAVY))
    # An interpreter measured for coverage imports more than the statement.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    modules, variables = done.stdout.splitlines()
    return set(modules.split()), set(variables.split())


@pytest.mark.parametrize("package", _LAZY)
def test_importing_a_package_loads_and_sets_nothing(package: str) -> None:
    """No torch, Lightning, bridge or subprocess, and the environment is left alone."""
    assert _effects(f"import {package}") == (set(), set())


def test_importing_what_hpu_core_is_told_loads_nothing() -> None:
    """The entry points that packages have for hpu-core cost no torch, no Lightning and no bridge."""
    entries = importlib.metadata.entry_points(group="hpu_core.plugins")

    assert entries.names
    assert _effects(f"import {', '.join(entry.module for entry in entries)}") == (set(), set())


@pytest.mark.parametrize("promise", _PROMISES)
def test_a_package_loads_no_more_than_it_says(promise: str) -> None:
    """What works without a framework or a bridge does not load them, and sets nothing that a Gaudi reads."""
    statement, absent = _PROMISES[promise]
    modules, variables = _effects(statement)

    assert not modules & absent
    assert not [name for name in variables if name.startswith(("HABANA", "HLS", "MASTER", "PT_HPU"))]


def test_the_probe_sees_a_module() -> None:
    """It finds what is loaded, so that the tests above can fail."""
    assert _effects("import hpu_core, subprocess")[0] == {"subprocess"}


def test_the_probe_sees_a_variable() -> None:
    """It finds what is set."""
    assert _effects("import os; os.environ['MASTER_PORT'] = '1'")[1] == {"MASTER_PORT"}


@pytest.mark.parametrize("package", _LAZY)
def test_all_is_sorted_and_names_what_is_public(package: str) -> None:
    """Nothing else can be fetched, and what is there beside it is underscored, or a module that was imported."""
    module = importlib.import_module(package)
    listed = {name for name in dir(module) if not name.startswith("_")} - {"TYPE_CHECKING"}
    public = {name for name in listed if not isinstance(getattr(module, name), types.ModuleType)}

    assert module.__all__ == sorted({*public, "__version__"})


@pytest.mark.parametrize("package", _LAZY)
def test_every_public_name_is_there(package: str) -> None:
    """Each name of `__all__` can be fetched, and is listed before it is, for completion."""
    module = importlib.import_module(package)
    listed = set(dir(module))

    assert set(module.__all__) <= listed
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize("package", _LAZY)
def test_a_name_is_fetched_once(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first use a public name is an ordinary attribute."""
    module = importlib.import_module(package)
    name = module.__all__[0]
    monkeypatch.delitem(vars(module), name, raising=False)
    first = getattr(module, name)

    assert vars(module)[name] is first


@pytest.mark.parametrize("package", _LAZY)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    """A typo fails as in any module."""
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'HPUAccelerater'"):
        _ = module.HPUAccelerater
