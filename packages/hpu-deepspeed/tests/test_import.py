"""What importing hpu_deepspeed does to a process: nothing."""

import os
import subprocess
import sys

import pytest

import hpu_deepspeed

_HEAVY = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "habana_frameworks", "hpu_core", "subprocess")

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
    """`import hpu_deepspeed` loads no torch, Lightning, bridge or subprocess, and leaves the environment alone."""
    assert _effects("import hpu_deepspeed") == ([], [])


def test_the_strategies_load_no_bridge() -> None:
    """Their classes need torch and Lightning, and no bridge before they train."""
    modules, variables = _effects(f"from hpu_deepspeed import {', '.join(hpu_deepspeed.__all__)}")

    assert "habana_frameworks" not in modules
    assert not [variable for variable in variables if variable.startswith(("HABANA", "HLS", "MASTER", "PT_HPU"))]


def test_the_probe_sees_a_module() -> None:
    """The probe finds what is loaded, so the tests above can fail."""
    assert _effects("import hpu_deepspeed, subprocess")[0] == ["subprocess"]


def test_the_probe_sees_a_variable() -> None:
    """The probe finds what is set."""
    assert _effects("import os; os.environ['MASTER_PORT'] = '1'")[1] == ["MASTER_PORT"]


def test_every_public_name_is_there() -> None:
    """Each name of `__all__` can be fetched from its module."""
    assert all(getattr(hpu_deepspeed, name) is not None for name in hpu_deepspeed.__all__)


def test_all_is_the_table_of_exports() -> None:
    """The sorted `__all__` and the table of modules hold the same names."""
    assert hpu_deepspeed.__all__ == sorted(hpu_deepspeed._MODULES)


def test_public_names_are_listed_before_they_are_fetched() -> None:
    """`dir` shows every public name, for completion."""
    assert set(hpu_deepspeed.__all__) <= set(dir(hpu_deepspeed))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match="module 'hpu_deepspeed' has no attribute 'HPUDeepSpedStrategy'"):
        hpu_deepspeed.HPUDeepSpedStrategy  # noqa: B018


def test_a_name_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first use a public name is an ordinary attribute."""
    monkeypatch.delitem(vars(hpu_deepspeed), "HPUDeepSpeedStrategy", raising=False)
    first = hpu_deepspeed.HPUDeepSpeedStrategy

    assert vars(hpu_deepspeed)["HPUDeepSpeedStrategy"] is first
