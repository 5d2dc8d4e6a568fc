"""Tests of discovery in processes of their own, with a bridge that torch loads."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

# A bridge that implements the calls that open no device, and records every other call as opening one.
_TORCH = """
import enum, sys, types

class synDeviceType(enum.Enum):
    synDeviceGaudi3 = 5

class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        opened.append(name)
        return lambda *arguments, **keywords: 0

opened = []
answers = {
    "core": {"is_lazy": lambda: False},
    "hpu": {"is_available": lambda: True, "device_count": lambda: 3, "is_initialized": lambda: False},
    "utils": {},
    "utils.experimental": {"_get_device_type": lambda: synDeviceType.synDeviceGaudi3},
}
for name, known in answers.items():
    module = Module(f"{__name__}.{name}")
    module.__dict__.update(known, __path__=[])
    sys.modules[module.__name__] = module
"""

_CALLS = """
import hpu_core
from hpu_core.info import collect
collect()
answers = [
    hpu_core.device_count(), hpu_core.is_available(), hpu_core.auto_device_count(), hpu_core.device_name(),
    len(hpu_core.devices()), hpu_core.parse_devices("auto"), str(hpu_core.synapse_version()),
]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Folder for the path, with a bridge of three devices and the entry point by which torch loads it."""
    bridge = tmp_path / "habana_frameworks" / "torch"
    bridge.mkdir(parents=True)
    # An ordinary package, since one on the path wins over every part of a namespace package such as the real one.
    (bridge.parent / "__init__.py").touch()
    (bridge / "__init__.py").write_text(_TORCH)
    (tmp_path / "bridge_autoload.py").write_text("def load():\n    import habana_frameworks.torch\n")
    metadata = tmp_path / "habana_torch_plugin-1.23.0.695.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: habana-torch-plugin\nVersion: 1.23.0.695\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nbridge_of_this_test = bridge_autoload:load\n")
    return tmp_path


@pytest.fixture
def run(machine: Path, forks: None) -> Callable[..., Any]:
    """Run a program on that machine and return the JSON that it prints."""

    def run(program: str, **different: str) -> Any:
        # Neither the simulator nor a real bridge of this machine may be loaded.
        removed = {"HPU_SIM_DEVICES", "HABANA_VISIBLE_MODULES", "TORCH_DEVICE_BACKEND_AUTOLOAD"}
        environment = {name: value for name, value in os.environ.items() if name not in removed}
        path = os.pathsep.join([str(machine), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", f"import json\n{program}"],
            env={**environment, "PYTHONPATH": path, "PT_HPU_AUTOLOAD": "0", **different},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


_autoloads = pytest.mark.skipif(
    Version(torch.__version__).release < (2, 5), reason="Requires: [torch>=2.5], which loads backends"
)


@_autoloads
def test_functions_agree_and_open_no_device(run: Callable[..., Any]) -> None:
    program = f"""
{_CALLS}
import habana_frameworks.torch as bridge, habana_frameworks.torch.hpu as hpu
opened = list(bridge.opened)
hpu.get_device_name()
print(json.dumps([answers, opened, bridge.opened]))
"""

    answers, opened, recorded = run(program)

    assert answers == [3, True, 3, "GAUDI3", 3, 3, "1.23.0.695"]
    assert opened == []
    # The assertion above can fail.
    assert recorded == ["get_device_name"]
