"""Workspace of a document: a copy of the repository, simulated cards of its own, and the processes of its blocks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from docs_runner import ROOT, programs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docs_runner.blocks import Block

# Files that a reader is said to have, and where they come from.
PROVIDED: Final = {
    "train.py": "docs/start/train.py",
    "ops_bf16.txt": "examples/ops_bf16_mnist.txt",
    "ops_bf16_mnist.txt": "examples/ops_bf16_mnist.txt",
    "ops_fp32.txt": "examples/ops_fp32_mnist.txt",
    "ops_fp32_mnist.txt": "examples/ops_fp32_mnist.txt",
}
TIMEOUT: Final = 600.0
# First word of the line that each rank prints, as fixtures.py writes it.
REPORT_PREFIX: Final = "docs_runner "
_NOT_COPIED: Final = shutil.ignore_patterns(".*", "__pycache__", "_build", "dist", "lightning_logs", "*.egg-info")


class Workspace:
    """Folder in which the blocks of one document run; a block that fails raises pytest's failure.

    Attributes:
        path: The copy of the repository.
        output: What the last block printed.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="docs-")
        self._base = Path(self._folder.name)
        self.path = self._base / "checkout"
        shutil.copytree(ROOT, self.path, ignore=_NOT_COPIED)
        for name, source in PROVIDED.items():
            shutil.copy(ROOT / source, self.path / name)
        self._bin = [str(Path(sys.executable).parent)]
        self.output = ""

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    def write(self, block: Block) -> None:
        """Write a block of kind "file"."""
        path = self.path / block.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run_shell(self, block: Block) -> None:
        """Run a shell block."""
        if re.search(r"\bpip install\b", block.text) and len(self._bin) == 1:
            self._create_environment(self._base / "environment")
        env = {} if block.devices is None else {"HPU_SIM_DEVICES": str(block.devices)}
        self._run(block.text, ("bash", "-euo", "pipefail", "-c", block.text), env)

    def run_python(self, block: Block, commands: Sequence[str]) -> None:
        """Run a Python block: a program for each Trainer that it makes, or the block as it is."""
        script = self.path / "block.py"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        commands = [text.replace("<MASTER_ADDR>", "127.0.0.1").replace("<MASTER_PORT>", port) for text in commands]
        found = programs.make_programs(block.text, commands)
        for program in found:
            script.write_text(program.text, encoding="utf-8")
            devices = block.devices or program.devices
            launcher = ("hpu-sim", "run", "--quiet", "--devices", str(devices))
            self._run(block.text, (*launcher, script.name), *program.nodes)
            check_reports(self.output, devices * len(program.nodes))
        if not found:
            script.write_text("\n".join([*programs.missing_definitions(block.text), block.text]), encoding="utf-8")
            # A block that activates the simulator itself must start without it.
            activates = "hpu_sim.activate(" in block.text
            launcher = ("hpu-sim", "run", "--quiet", "--devices", str(block.devices or 1))
            self._run(block.text, (*(("python",) if activates else launcher), script.name), {})

    def _create_environment(self, folder: Path) -> None:
        """Create an environment that sees the packages of this one until something is installed over them."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)  # noqa: S603 - our own arguments.
        (site,) = folder.glob("lib/python*/site-packages")
        # A .pth file may import; this way the .pth files of the outer environment are read as well.
        line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (site / "outer.pth").write_text(line, encoding="utf-8")
        self._bin.insert(0, str(folder / "bin"))

    def _run(self, text: str, arguments: Sequence[str], *machines: Mapping[str, str]) -> None:
        """Run a command on each of several machines, all at the same time."""
        deadline = time.monotonic() + TIMEOUT
        common = os.environ | {
            "COLUMNS": "100",
            "DOCS_RUNNER_FRAMEWORK": programs.framework(text),
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([*self._bin, os.environ["PATH"]]),
            "PL_TRAINER_MAX_EPOCHS": "1",
            "PYTHONPATH": str(Path(__file__).parent),
        }
        processes = []
        with ExitStack() as stack:
            log = stack.enter_context((self._base / "log").open("w+", encoding="utf-8"))
            for index, variables in enumerate(machines):
                env = common | {"HPU_SIM_RUNTIME_DIR": str(self._base / f"cards-{index}")} | dict(variables)
                process = subprocess.Popen(  # noqa: S603 - running the document's commands is the purpose.
                    arguments, cwd=self.path, env=env, stdout=log, stderr=log, start_new_session=True
                )
                stack.callback(_kill_group, process)
                processes.append(process)
            codes = [_wait(process, deadline) for process in processes]
            log.seek(0)
            self.output = log.read()
        if any(codes):
            pytest.fail("\n".join([f"exit codes {codes}, after:", *self.output.splitlines()[-60:]]), pytrace=False)


def check_reports(output: str, world_size: int) -> None:
    """Check that every rank reported training steps on a card."""
    lines = [line for line in output.splitlines() if line.startswith(REPORT_PREFIX)]
    reports = [json.loads(line.removeprefix(REPORT_PREFIX)) for line in lines]
    print(*sorted({f"{r['strategy']}, {r['precision']}, {r['ranks']} rank(s), on {r['device']}" for r in reports}))
    if len(reports) != world_size or any(report["ranks"] != world_size for report in reports):
        pytest.fail(f"{world_size} ranks must report, got {reports}", pytrace=False)
    if any(report["steps"] == 0 or report["device"] != "hpu" for report in reports):
        pytest.fail(f"every rank must train on hpu, got {reports}", pytrace=False)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int:
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the ranks that it started, which are in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
