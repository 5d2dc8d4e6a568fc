"""Activation of the simulator."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hpu_sim
from hpu_sim.device import runtime
from hpu_sim.device.config import SimConfig

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def test_an_active_machine_is_described() -> None:
    """Subprocesses inherit the variables. A library and a program may both activate it."""
    import habana_frameworks.torch as bridge

    path = list(sys.path)
    hpu_sim.activate(devices=2)
    machine = runtime.active_config()

    assert sys.path == path
    assert hpu_sim.is_active()
    assert machine == SimConfig.create(2, lazy="1")
    assert [os.environ[f"HPU_SIM_{name}"] for name in ("DEVICES", "GENERATION", "RELEASE")] == [
        "2",
        "GAUDI2",
        machine.release.version,
    ]
    assert bridge.__simulated__ is True


@pytest.mark.parametrize(
    ("other", "lazy", "described"),
    [
        ({"devices": 1}, "1", "1 x GAUDI2"),
        ({"devices": 2, "generation": "GAUDI3"}, "1", "2 x GAUDI3"),
        ({"devices": 2, "release": "1.18.0"}, "1", "2 x GAUDI2 on SynapseAI 1.18.0"),
        ({"devices": 2}, "0", ".*, eager mode"),
    ],
)
def test_another_machine_is_refused(
    other: dict[str, Any], lazy: str, described: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    message = rf"already runs as 2 x GAUDI2 on SynapseAI .*, lazy mode and cannot become {described}.*; use another pro"

    with pytest.raises(RuntimeError, match=message):
        hpu_sim.activate(**other)


def test_the_banner_says_simulated(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """The first use of a device prints one line on stderr. Activation neither prints nor acquires, for launchers."""
    program = """
    import hpu_sim, sys
    hpu_sim.activate(generation="GAUDI3")
    import torch
    print("active", torch.hpu.is_initialized(), file=sys.stderr)
    torch.ones(1, device="hpu")
    """

    result = run_python(program, PT_HPU_LAZY_MODE="1", HPU_SIM_RELEASE=None)
    other_rank = run_python(program, RANK="1", WORLD_SIZE="2", LOCAL_RANK="0")

    active, banner = result.stderr.splitlines()
    assert (active, result.stdout) == ("active False", "")
    assert banner.startswith("hpu-sim: simulated card 0 of 1 x GAUDI3 on SynapseAI ")
    assert banner.endswith(", lazy mode")
    assert (other_rank.returncode, other_rank.stderr) == (0, "active False\n")


def test_handlers_of_the_program_come_before_the_wait_for_the_device(output_of: Callable[..., str]) -> None:
    """As on a card, where the bridge waits in a handler of C: a rank can tell the others that it ends."""
    output = output_of(
        "import atexit, hpu_sim, torch\n"
        "from hpu_sim.device import runtime\n"
        "hpu_sim.activate()\n"
        "atexit.register(print, 'program')\n"
        "torch.ones(1, device='hpu')\n"
        "class Native:\n"
        "    def __getattr__(self, name): return lambda *arguments: print(name)\n"
        "runtime._state.native = Native()\n"
    )

    assert output.splitlines() == ["program", "drain_autograd_engine", "finish_collectives"]


def test_without_activation_there_is_no_device(output_of: Callable[..., str]) -> None:
    """Importing the package and calling `is_active` have no side effects."""
    program = """
    import hpu_sim, torch, importlib.util
    print(hpu_sim.is_active(), hasattr(torch, "hpu"), importlib.util.find_spec("habana_frameworks"))
    """

    assert output_of(program) == "False False None"


@pytest.mark.parametrize("call", ["hpu_sim.stats()", "runtime.active_config()"])
def test_figures_need_an_active_device(call: str, run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """The error names the three ways to activate."""
    result = run_python(f"import hpu_sim; from hpu_sim.device import runtime; {call}")

    assert result.stderr.endswith(
        "RuntimeError: the simulated hpu device is not active; set HPU_SIM_DEVICES=1, use `hpu-sim run`, "
        "or call hpu_sim.activate() first\n"
    )


@pytest.mark.parametrize("entry", ["import hpu_sim; hpu_sim.activate()", "import torch"], ids=["activate", "autoload"])
def test_a_real_bridge_is_never_mixed_with_the_simulator(
    entry: str, tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The simulator refuses to start beside an installed habana_frameworks, and names its folder."""
    package = tmp_path / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    devices = "1" if "torch" in entry else None

    result = run_python(entry, PYTHONPATH=path, HPU_SIM_DEVICES=devices)

    assert result.returncode == 1
    assert f"must not run beside a real habana_frameworks, got {package.parent};" in result.stderr


@pytest.fixture(scope="module")
def activated(output_of_new_python: Callable[..., str]) -> list[str]:
    """What a new interpreter prints that activates the machine of HPU_SIM_DEVICES before it imports torch."""
    program = """
    import sys
    import hpu_sim
    from hpu_sim.device import autocast
    stock, calls = autocast.register, []
    autocast.register = lambda *arguments: (calls.append(1), stock(*arguments))
    hpu_sim.activate(devices=2)
    import torch
    print(len(calls), torch.hpu.device_count())
    torch.ones(1, device="hpu")
    print("torch._dynamo" in sys.modules)
    print("hpu_backend" in torch._dynamo.list_backends(exclude_tags=()))
    """
    return output_of_new_python(program, HPU_SIM_DEVICES="2", PT_HPU_LAZY_MODE="0").splitlines()


def test_autoload_during_activation_does_nothing(activated: list[str]) -> None:
    """Activation imports torch, whose entry point would activate the machine of HPU_SIM_DEVICES again."""
    assert activated[0] == "1 2"


def test_a_program_that_compiles_nothing_does_not_import_dynamo(activated: list[str]) -> None:
    """The import takes seconds. It registers the backend."""
    assert activated[1:] == ["False", "True"]


def test_activation_registers_an_installed_hpu_core(tmp_path: Path, output_of: Callable[..., str]) -> None:
    """In a notebook torch has called the entry point before the simulator was active."""
    metadata = tmp_path / "hpu_core_fake-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hpu-core-fake\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nhpu_core = fake_core:autoload\n", encoding="utf-8")
    source = "import os\ndef autoload(): print(os.environ.get('HPU_SIM_DEVICES'))\n"
    (tmp_path / "fake_core.py").write_text(source, encoding="utf-8")

    output = output_of("import torch, hpu_sim; hpu_sim.activate(devices=2)", PYTHONPATH=str(tmp_path))

    assert output.splitlines() == ["None", "2"]
