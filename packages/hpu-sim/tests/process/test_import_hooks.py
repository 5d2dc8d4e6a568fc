"""Import hook of the bridge."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from hpu_sim.process import subprocess_env
from hpu_sim.process.import_hooks import BRIDGE_FOLDER, BRIDGE_PACKAGES, import_torch_before_bridge

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_HOOK_PATH = str(subprocess_env.hook_folder())


def test_searching_the_bridge_does_not_import_torch(output_of_new_python: Callable[..., str]) -> None:
    """Ray's daemons search the bridge when they start, and raylet waits for them only so long."""
    program = """
    import importlib.util, sys
    found = importlib.util.find_spec("habana_frameworks")
    print(found is not None, "torch" in sys.modules)
    """

    assert output_of_new_python(program, PYTHONPATH=_HOOK_PATH, HPU_SIM_DEVICES="2") == "True False"


def test_other_modules_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finder of the bridge finds nothing once torch is imported."""
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delitem(sys.modules, "habana_dataloader", raising=False)
    import_torch_before_bridge()

    assert importlib.util.find_spec("no_such_module") is None
    assert importlib.util.find_spec("habana_dataloader") is None


def test_every_package_of_the_bridge_is_hooked() -> None:
    """A program may import any of them first."""
    assert {path.parent.name for path in BRIDGE_FOLDER.glob("*/__init__.py")} == BRIDGE_PACKAGES
