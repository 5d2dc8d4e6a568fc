"""What importing hpu_precision does to a process: nothing."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

import hpu_precision

_HEAVY = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "habana_frameworks", "pyhlml", "subprocess")

# Prints which of the heavy modules `{statement}` loads, and what it changes in the environment.
_PROBE = """
import os, sys
before = dict(os.environ)
{statement}
print(*(name for name in {heavy} if name in sys.modules))
print(*(name for name in set(before) | set(os.environ) if before.get(name) != os.environ.get(name)))
"""


def _effects(statement: str) -> tuple[list[str], list[str]]:
    """Run a statement in a fresh interpreter; return the heavy modules it loads and the variables it changes."""
    program = _PROBE.format(statement=statement, heavy=_HEAVY)
    # An interpreter measured for coverage imports more than the statement.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    modules, variables = done.stdout.splitlines()
    return modules.split(), variables.split()


def test_importing_loads_nothing_and_sets_nothing() -> None:
    """`import hpu_precision` loads no torch, Lightning, bridge or subprocess, and leaves the environment alone."""
    assert _effects("import hpu_precision") == ([], [])


def test_what_hpu_core_is_told_loads_nothing() -> None:
    """The entry point that hpu-core loads costs no torch, no Lightning and no bridge."""
    assert _effects("from hpu_precision._plugin import PLUGIN") == ([], [])


def test_op_lists_need_no_lightning_and_no_bridge() -> None:
    """Lists can be made and checked where neither is installed."""
    modules, variables = _effects("from hpu_precision import OpLists; OpLists.create(bf16_ops=['linear'])")

    assert not {"lightning", "pytorch_lightning", "habana_frameworks"} & set(modules)
    assert not variables


@pytest.mark.parametrize("name", _HEAVY[-1:])
def test_the_probe_sees_a_module(name: str) -> None:
    """The probe finds what is loaded, so the tests above can fail."""
    assert _effects(f"import hpu_precision, {name}")[0] == [name]


def test_the_probe_sees_a_variable() -> None:
    """The probe finds what is set."""
    assert _effects("import os; os.environ['HABANA_PROFILE'] = '1'")[1] == ["HABANA_PROFILE"]


def test_every_public_name_is_there() -> None:
    """Each name of `__all__` can be fetched from its module."""
    assert all(getattr(hpu_precision, name) is not None for name in hpu_precision.__all__)


def test_all_is_the_table_of_exports() -> None:
    """The sorted `__all__` and the table of modules hold the same names."""
    assert hpu_precision.__all__ == sorted(hpu_precision._MODULES)


def test_public_names_are_listed_before_they_are_fetched() -> None:
    """`dir` shows every public name, for completion."""
    assert set(hpu_precision.__all__) <= set(dir(hpu_precision))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match="module 'hpu_precision' has no attribute 'HPUPrecisionPlugim'"):
        hpu_precision.HPUPrecisionPlugim  # noqa: B018 - asking for the name is what is tested.


def test_a_name_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first use a public name is an ordinary attribute."""
    monkeypatch.delitem(vars(hpu_precision), "default_op_lists", raising=False)
    first = hpu_precision.default_op_lists

    assert isinstance(hpu_precision, ModuleType)
    assert vars(hpu_precision)["default_op_lists"] is first
