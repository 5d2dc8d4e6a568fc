"""Runs programs in processes of their own, with a simulated machine each."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version

from hpu_core import frameworks

# A module that sees to it that it is trained on the card, and says so.
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

# What a simulated machine takes on which Lightning is imported without our hook: Lightning 2.0 imports HMP from the
# bridge of every machine that has cards, so that by itself it stands no release without it.
UNHOOKED: dict[str, Any] = {"HPU_SIM_RELEASE": "1.12.1"} if frameworks.current().version < Version("2.1") else {}

# What starts the simulated machine of a program: torch itself, where it loads backends.
START = (
    ""
    if Version(torch.__version__) >= Version("2.5")
    else "from hpu_sim.activation import activate_from_environment\nactivate_from_environment()\n"
)

QUIET = "max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False"


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program.

    Args:
        program: Its text.
        folder: Where its simulated cards are taken, and where it runs.
        **variables: For its environment, which has nothing else of ours, and of the simulator's only which release it
            plays. A PYTHONPATH comes before this process's path.
    """
    kept = {"HPU_SIM_CACHE", "HPU_SIM_RELEASE"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("HPU_", "PT_HPU_", "HABANA_"))
    }
    paths = [*filter(None, [variables.pop("PYTHONPATH", "")]), *sys.path]
    environment.update(HPU_SIM_RUNTIME_DIR=str(folder), PYTHONPATH=os.pathsep.join(paths), **variables)
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=folder, check=False
    )


def output(program: str, folder: Path, **variables: str) -> list[str]:
    """Run a program that has to succeed; return the lines that it prints."""
    done = run(program, folder, **variables)

    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def make_peer(folder: Path, module: str, plugin: str) -> None:
    """Write a module and the metadata of a distribution that has a plugin in it.

    Args:
        folder: Where to; it has to be on the path.
        module: The module's name; the distribution's is the same.
        plugin: The expression for the plugin.
    """
    text = f"from hpu_core.registration.plugins import ClassPaths, Plugin\nPLUGIN = {plugin}\n"
    (folder / f"{module}.py").write_text(text)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[hpu_core.plugins]\n{module} = {module}:PLUGIN\n")
