"""Programs that run in processes of their own, each on a simulated machine of its own."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_testing.fork_server import forks
from hpu_testing.leftovers import shared_children

_framework = frameworks.current()
PYTORCH = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}[_framework.name]
FABRIC = {"lightning": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}[_framework.name]

# Trains a module and prints the strategy and the device type of its batches.
MODULE = """
import torch
class Module({base}):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        self.trained_on = batch.device.type
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def fit(trainer):
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(4, 4)))
    print(type(trainer.strategy).__name__, module.trained_on)
"""

# Variables for a program that imports Lightning without hpu-core's hook. Lightning 2.0 then imports HMP, which only
# old releases have.
UNHOOKED: dict[str, Any] = {"HPU_SIM_RELEASE": "1.12.1"} if _framework.version < Version("2.1") else {}

# Starts the simulator where torch does not load backends.
START = (
    ""
    if Version(torch.__version__) >= Version("2.5")
    else "from hpu_sim.process.activation import activate_from_environment\nactivate_from_environment()\n"
)

# Runs each line of JSON, a program, in a fork, and answers with its exit status and the lines that it printed.
_SERVER = f"""
import json, os, sys, traceback
from {PYTORCH} import Trainer
from {FABRIC} import Fabric
for line in sys.stdin:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 1)
        try:
            exec(json.loads(line), globals())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        lines = file.read().splitlines()
    print(json.dumps([os.waitpid(child, 0)[1], lines]), flush=True)
"""

QUIET = "max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False"


def output(program: str, folder: Path, **variables: str) -> list[str]:
    """Run a program that must succeed, as a fork that has imported torch, and return the lines that it prints.

    Args:
        program: Source of the program.
        folder: Working directory, which also holds the locks of the simulated devices.
        **variables: Environment variables. Of the variables of these packages, only the simulated release is
            inherited. PYTHONPATH goes before the path of this process.
    """
    with forks():
        return output_of_new_python(program, folder, **variables)


def output_of_new_python(program: str, folder: Path, **variables: str) -> list[str]:
    """Run a program as `output` does, in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=_environment(folder, variables),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Server:
    """A program that has imported Lightning, and forks for each text that it is to run.

    Args:
        folder: As for `output`.
        **variables: As for `output`.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self._errors = folder / "stderr"
        with self._errors.open("w") as stderr, forks():
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                env=_environment(folder, variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=folder,
            )
        shared_children.add(self._process.pid)

    def output(self, program: str) -> list[str]:
        """Run a program that must succeed, and return the lines that it prints."""
        with suppress(BrokenPipeError):
            print(json.dumps(program), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline() if self._process.stdout else ""

        assert answer, self._errors.read_text()
        code, lines = json.loads(answer)
        assert code == 0, self._errors.read_text()
        return list(lines)

    def close(self) -> None:
        """Wait until the program ends."""
        self._process.communicate()


def _environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    kept = {"HPU_SIM_CACHE", "HPU_SIM_RELEASE"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("HPU_", "PT_HPU_", "HABANA_"))
    }
    paths = [*filter(None, [variables.pop("PYTHONPATH", "")]), *sys.path]
    return environment | {"HPU_SIM_RUNTIME_DIR": str(folder), "PYTHONPATH": os.pathsep.join(paths), **variables}
