"""Subprocesses of a simulated program, also where torch loads no device backends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.device.config import SimConfig
from hpu_sim.process import subprocess_env

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_OFF: Final = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@pytest.mark.parametrize("path", ["", "a", f"a{os.pathsep}b"])
def test_the_hook_comes_first_on_the_path(path: str) -> None:
    """Other entries follow the folder of the hook."""
    variables = subprocess_env.variables(SimConfig.create(), {"PYTHONPATH": path})

    assert variables["PYTHONPATH"].split(os.pathsep) == [
        str(subprocess_env.hook_folder()),
        *filter(None, path.split(":")),
    ]


def test_the_hook_is_added_once() -> None:
    """The variables of a subprocess are right for its own subprocesses."""
    once = subprocess_env.variables(SimConfig.create(), {})

    assert subprocess_env.variables(SimConfig.create(), once) == once


def test_a_subprocess_has_the_device(tmp_path: Path) -> None:
    """A program that activates the simulator, as this one, passes it on to interpreters that it starts.

    They may import a package of the bridge before torch, as on a card.
    """
    child = "import habana_dataloader, torch; print(torch.ones(3, device='hpu').sum().item(), torch.hpu.device_count())"
    environment = {**os.environ, **_OFF, "HPU_SIM_RUNTIME_DIR": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", child], env=environment, check=True, capture_output=True, text=True)

    assert done.stdout == "3.0 2\n"


def test_another_sitecustomize_still_runs(tmp_path: Path, output_of_new_python: Callable[..., str]) -> None:
    """The hook does not hide the machine's own sitecustomize."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.machine = 'mine'\n", encoding="utf-8")
    path = os.pathsep.join([str(subprocess_env.hook_folder()), str(tmp_path)])

    output = output_of_new_python("import sitecustomize; print(machine, sitecustomize.__file__)", PYTHONPATH=path)

    assert output == f"mine {tmp_path / 'sitecustomize.py'}"


@pytest.mark.parametrize(("devices", "hooks"), [(None, False), ("1", True)])
def test_the_hook_imports_neither_torch_nor_the_bridge(
    devices: str | None, hooks: bool, output_of_new_python: Callable[..., str]
) -> None:
    """An interpreter that needs no device starts as fast as without the hook, which waits only with the variable."""
    program = """
    import sys
    print(*({"torch", "habana_frameworks", "hpu_sim.process.import_hooks"} & set(sys.modules)))
    """

    loaded = output_of_new_python(program, PYTHONPATH=str(subprocess_env.hook_folder()), HPU_SIM_DEVICES=devices)

    assert loaded == ("hpu_sim.process.import_hooks" if hooks else "")


def test_an_interpreter_without_the_simulator_is_left_alone(fresh_environment: Callable[..., dict[str, str]]) -> None:
    """A subprocess may run the interpreter of another environment, such as the base of this one."""
    program = """if True:
    import importlib.util, sys
    print(importlib.util.find_spec("hpu_sim") is not None, "hpu_sim.process.import_hooks" in sys.modules)
    """
    environment = fresh_environment({"PYTHONPATH": str(subprocess_env.hook_folder()), "HPU_SIM_DEVICES": "1"})

    result = subprocess.run(
        [sys._base_executable, "-c", program],  # type: ignore[attr-defined] # CPython's own, for venv
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    has_hpu_sim, is_hooked = result.stdout.split()
    assert (is_hooked, result.stderr) == (has_hpu_sim, "")


def test_a_build_does_not_activate_the_simulator(tmp_path: Path, output_of: Callable[..., str]) -> None:
    """The build imports torch in a subprocess, where loading the device would wait for the build itself."""
    program = """
    import os, sys
    from hpu_sim.device import build
    ran = []
    def run(command, env, **options):
        ran.append("HPU_SIM_DEVICES" in env)
        raise SystemExit(print(ran))
    build.subprocess.run = run
    os.environ["HPU_SIM_DEVICES"] = "1"
    build.load_extension()
    """

    output = output_of(program, HPU_SIM_CACHE=str(tmp_path), PYTHONPATH=str(subprocess_env.hook_folder()))

    assert output == "[False]"
