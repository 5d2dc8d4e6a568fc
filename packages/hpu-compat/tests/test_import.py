"""What importing the packages does to a process: next to nothing, and what the archived package did is named here."""

import importlib
import sys
from types import ModuleType

import pytest

import hpu_compat
import lightning_habana

from .conftest import Run
from .interface import MODULES

_PEERS = ("hpu_ddp", "hpu_deepspeed", "hpu_precision", "hpu_profiler")
_HEAVY = (*_PEERS, "torch", "lightning", "pytorch_lightning", "lightning_fabric", "habana_frameworks", "subprocess")

# Imports modules, and prints which of the heavy ones that loads and what it changes in the environment.
_PROBE = """
import importlib, os, sys
before = dict(os.environ)
for name in {modules}:
    importlib.import_module(name)
print(*(name for name in {heavy} if name in sys.modules))
print(*(name for name in set(before) | set(os.environ) if before.get(name) != os.environ.get(name)))
"""

# Uses names of the archived package, and prints after each which packages of this family have been loaded by then.
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


def test_importing_any_module_loads_nothing_and_sets_nothing(run: Run) -> None:
    """No torch, Lightning, bridge, peer or subprocess, and the environment is left alone."""
    assert run(_PROBE.format(modules=list(MODULES), heavy=_HEAVY)) == ["", ""]


def test_what_torch_calls_loads_nothing_either(run: Run) -> None:
    """`import torch` pays for a few small modules, with a card or the simulator."""
    program = _PROBE.format(modules=["hpu_compat"], heavy=_HEAVY) + "hpu_compat = sys.modules['hpu_compat']\n"
    own = "print(*sorted(name for name in sys.modules if name.startswith(('hpu_compat', 'lightning_habana'))))"
    lines = run(program + "hpu_compat.autoload()\n" + own, HPU_SIM_DEVICES="1")

    assert lines[:2] == ["", ""]
    assert lines[2].split() == ["hpu_compat", "hpu_compat.__about__", "hpu_compat._hook"]


def test_the_probe_sees_a_module(run: Run) -> None:
    """The probe finds what is loaded, so the tests above can fail."""
    assert run(_PROBE.format(modules=["lightning_habana", "subprocess"], heavy=_HEAVY))[0] == "subprocess"


def test_each_name_loads_the_package_behind_it(run: Run) -> None:
    """And none of its peers."""
    lines = run(_STEPS.format(peers=_PEERS))

    assert lines == [
        "",
        "hpu_precision",
        "hpu_ddp hpu_precision",
        "hpu_ddp hpu_precision hpu_profiler",
    ]


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in MODULES} - {""}))
def test_packages_have_their_modules(module: str) -> None:
    """The archived package imported all of them at once, so that programs reach them as attributes."""
    package = importlib.import_module(module)
    below = [name for name in MODULES if name.rpartition(".")[0] == module and "__" not in name]

    assert all(isinstance(getattr(package, name.rpartition(".")[2]), ModuleType) for name in below)


def test_names_are_listed_before_they_are_fetched() -> None:
    """`dir` shows them, for completion."""
    assert {*lightning_habana.__all__, "pytorch"} <= set(dir(lightning_habana))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match=r"^module 'lightning_habana' has no attribute 'HPUAccelerater'$"):
        lightning_habana.HPUAccelerater  # noqa: B018 - asking for the name is what is tested.


def test_the_version_goes_with_the_interface() -> None:
    """Programs compare it with the archived package's, and it says whose it is."""
    assert lightning_habana.__version__ == "1.7.0+hpu.compat"
    assert hpu_compat.__version__ == "0.1.0"


def test_every_module_is_in_the_table() -> None:
    """What can be imported is what the archived package had."""
    import pkgutil

    found = [name for _, name, _ in pkgutil.walk_packages(lightning_habana.__path__, "lightning_habana.")]

    assert sorted(["lightning_habana", *found]) == sorted(MODULES)
    assert "lightning_habana" in sys.modules
