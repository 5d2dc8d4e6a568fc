"""Command-line interface."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from hpu_sim import cli
from hpu_sim.device import build

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("forks")

_SCRIPT: Final = """
import os, sys
import torch

print(__name__, torch.hpu.device_count(), torch.hpu.get_device_name(), os.path.abspath(sys.path[0]), *sys.argv)
sys.exit(7)
"""


def test_a_script_runs_as_under_python(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The script is `__main__`, gets its folder and all later arguments, and its exit code is the command's."""
    (tmp_path / "script.py").write_text(_SCRIPT, encoding="utf-8")

    result = hpu_sim_command("run", "--devices", "3", "--generation", "gaudi3", "script.py", "--devices", "9", "x")

    assert (result.returncode, result.stdout) == (7, f"__main__ 3 GAUDI3 {tmp_path} script.py --devices 9 x\n")


def test_a_module_runs_as_under_python(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Variables set the defaults of the options."""
    (tmp_path / "program.py").write_text(_SCRIPT, encoding="utf-8")

    result = hpu_sim_command("run", "-m", "program", "-v", HPU_SIM_DEVICES="4", HPU_SIM_GENERATION="GAUDI3")

    assert result.returncode == 7
    assert result.stdout == f"__main__ 4 GAUDI3 {tmp_path} {tmp_path / 'program.py'} -v\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "two"], "`devices` must be a number from 1 to 64, got 'two'"),
        (["--devices", "0"], "`devices` must be a number from 1 to 64, got '0'"),
        (["--devices", "65"], "`devices` must be a number from 1 to 64, got '65'"),
        (["--memory", "plenty"], "`memory` must be "),
        (["--generation", "GAUDI9"], "`generation` must be one of GAUDI, GAUDI2, GAUDI3, got 'GAUDI9'"),
        (["--release", "0.1"], "`release` must be a SynapseAI release that the simulator knows"),
        (["--machine", "auto:1"], "`machine` must be a name without a colon, got 'auto:1'"),
        ([], "`script` must be an existing file or a command on PATH, got 'missing.py'"),
    ],
)
def test_a_bad_value_is_a_usage_error(arguments: list[str], message: str) -> None:
    """The exit code is 2, and the error is one line that names the value."""
    result = CliRunner().invoke(cli.main, ["run", *arguments, "missing.py"])

    assert result.exit_code == 2
    errors = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"Error: {message}")


def test_a_command_on_the_path_runs_with_the_device(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A SCRIPT that is not a file is a command, whose subprocesses are on the same machine."""
    script = "import os, torch\nprint(torch.ones(1, device='hpu').device, os.environ['RANK'])\n"
    (tmp_path / "script.py").write_text(script, encoding="utf-8")

    result = hpu_sim_command("run", "--quiet", "torchrun", "--nproc_per_node=1", "script.py")

    assert (result.returncode, result.stdout) == (0, "hpu:0 0\n"), result.stderr


@pytest.mark.slow
def test_a_command_of_another_folder_of_the_path_runs(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Commands of hpu-sim's own environment come first, then those of PATH."""
    tool = tmp_path / "bin" / "my-tool"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\nimport torch\nprint(torch.hpu.device_count())\n", encoding="utf-8")
    tool.chmod(0o755)

    result = hpu_sim_command("run", "--devices", "2", "my-tool", PATH=f"{tool.parent}:/usr/bin:/bin")

    assert (result.returncode, result.stdout) == (0, "2\n"), result.stderr


def test_a_report_names_the_command_as_typed(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    hpu_sim_command("run", "--report", "report.json", "python", "-c", "pass")

    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["command"] == ["python", "-c", "pass"]


def test_build_prints_the_cache_entry(hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = hpu_sim_command("build")

    assert (result.returncode, result.stdout) == (0, f"{build.build_key()}\n")


@pytest.mark.parametrize("arguments", [["build"], ["run", "script.py"]], ids=["build", "run"])
def test_a_missing_compiler_is_one_sentence(
    arguments: list[str], tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The command exits with code 1 before the script starts, without a traceback."""
    (tmp_path / "script.py").write_text("print('started')", encoding="utf-8")

    result = hpu_sim_command(*arguments, HPU_SIM_CACHE=str(tmp_path / "cache"), CXX="no-such-compiler")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: hpu-sim needs a C++ compiler and found no 'no-such-compiler' on PATH; "
        "install one (Debian and Ubuntu: apt-get install g++) or set CXX\n"
    )


@pytest.mark.parametrize(
    ("choices", "got"),
    [(["--strategy", "auto,fsdp"], "got 1 and 2"), (["--generation", "GAUDI2,GAUDI3"], "got 2 and 1")],
    ids=["strategies", "generations"],
)
def test_the_trace_of_a_plan_is_of_one_strategy_and_one_generation(
    choices: list[str], got: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()

    result = CliRunner().invoke(cli.main, ["plan", *choices, "--trace", str(tmp_path / "plan.json"), str(script)])

    assert result.exit_code == 2
    assert got in " ".join(result.output.split())
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("command", [[], ["run"], ["build"]], ids=["", "run", "build"])
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(cli.main, [*command, "-h"])

    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_the_device_can_be_strict(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Also in what the script starts."""
    (tmp_path / "script.py").write_text(
        "import os, torch\nx = torch.ones(2, device='hpu')\nprint(os.environ['HPU_SIM_STRICT'], flush=True)\n"
        "torch.fft.fft(x)\n",
        encoding="utf-8",
    )

    result = hpu_sim_command("run", "--strict", "script.py")

    assert (result.returncode, result.stdout) == (1, "1\n")
    assert "RuntimeError: Complex datatype is not supported on HPU device." in result.stderr


def test_the_summary_counts_what_a_strict_device_would_refuse(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "script.py").write_text("import torch\ntorch.fft.fft(torch.ones(2, device='hpu'))\n", encoding="utf-8")

    result = hpu_sim_command("run", "--report", "report.json", "script.py")

    assert result.returncode == 0
    assert "  --strict would refuse or change: " in result.stderr
