"""In a fresh process discovery loads a bridge that loads itself, and opens no card of it."""

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

# A bridge that answers what does not open a card; anything else that it is asked is written down as an opened card.
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
from hpu_core.info._collect import collect
from hpu_core.info._judge import judge
judge(collect())
answers = [
    hpu_core.device_count(), hpu_core.is_available(), hpu_core.auto_device_count(), hpu_core.device_name(),
    len(hpu_core.devices()), hpu_core.parse_devices("auto"), str(hpu_core.synapse_version()),
]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder to put first on the path: a bridge with three cards, and the entry point by which torch loads it."""
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
def run(machine: Path) -> Callable[..., Any]:
    """Runs a program on that machine and returns what it prints as JSON."""

    def run(program: str, **different: str) -> Any:
        # Neither the simulator nor a real bridge of this machine may load itself.
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
    Version(torch.__version__).release < (2, 5), reason="Requires: [torch>=2.5], which loads back-ends by itself"
)


@_autoloads
def test_a_bridge_that_loads_itself(run: Callable[..., Any]) -> None:
    """A program that has not imported torch is told about the cards of the bridge that torch loads."""
    program = "import hpu_core, sys\nassert 'torch' not in sys.modules\nprint(json.dumps(hpu_core.device_count()))"

    assert run(program) == 3


@_autoloads
def test_every_answer_about_a_bridge(run: Callable[..., Any]) -> None:
    """All functions speak of the same cards."""
    assert run(f"{_CALLS}print(json.dumps(answers))") == [3, True, 3, "GAUDI3", 3, 3, "1.23.0.695"]


@_autoloads
def test_a_bridge_that_may_not_load_itself(run: Callable[..., Any]) -> None:
    """Where the user has forbidden that, discovery does not load the bridge either."""
    program = "import hpu_core, sys\nhpu_core.devices()\nprint(json.dumps('habana_frameworks.torch' in sys.modules))"

    assert run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") is False


def test_no_card_is_opened(run: Callable[..., Any]) -> None:
    """Every function of discovery, and everything that hpu-info asks, leaves the cards alone."""
    assert run(f"import habana_frameworks.torch as bridge\n{_CALLS}print(json.dumps(bridge.opened))") == []


def test_an_opened_card_is_seen(run: Callable[..., Any]) -> None:
    """The test above can fail: the bridge of these tests notices a call that opens a card."""
    program = (
        "import habana_frameworks.torch as bridge\nfrom hpu_core.bridge import device_name\n"
        "device_name()\nprint(json.dumps(bridge.opened))"
    )

    assert run(program) == ["get_device_name"]


def test_importing_discovery_loads_no_torch(run: Callable[..., Any]) -> None:
    """Torch is imported when cards are looked for, not before."""
    program = "import sys, hpu_core.discovery, hpu_core.info\nprint(json.dumps('torch' in sys.modules))"

    assert run(program) is False
