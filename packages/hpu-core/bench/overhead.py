"""Gates for what hpu-core adds: to a step of Lightning's Trainer, to imports, and to saving checkpoints.

    python packages/hpu-core/bench/overhead.py [--only step]

Both sides of a ratio are measured in turns in one process with one thread, until the median of the ratios is known well
enough. Times of steps and checkpoints are simulated and do not predict those of a card. Run it on an idle machine. The
exit code is 1 if a gate is missed or cannot be judged.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_STEPS: Final = 60
_WARM_UP: Final = 10
_MOST: Final = 64
# Of a checkpoint in bytes: large enough for the bandwidth to matter.
_BYTES: Final = 64 << 20
_TIMED_IMPORT: Final = "import time, torch; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return three linear layers of width 512, and an input of 64 rows for each step."""
    import torch
    from torch import nn

    layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return layers, torch.randn(64 * _STEPS, 512)


def transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return four encoder layers of width 256, and an input of 8 sequences of 64 for each step."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, nhead=4, dim_feedforward=1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False), torch.randn(8 * _STEPS, 64, 256)


def step_seconds(make: Callable[[], tuple[torch.nn.Module, torch.Tensor]], accelerator: Any, folder: str) -> float:
    """Train with Lightning's Trainer, and return the median time from one batch end to the next."""
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    layers, data = make()

    class Model(LightningModule):
        """The layers, with AdamW."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def training_step(self, batch: Any) -> torch.Tensor:
            """Return the loss."""
            loss: torch.Tensor = self.layers(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return AdamW."""
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    ends: list[float] = []

    class Clock(Callback):
        """Callback that records the ends of batches."""

        def on_train_batch_end(self, *_: Any) -> None:
            """Record the time."""
            ends.append(time.perf_counter())

    trainer = Trainer(
        accelerator=accelerator,
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Clock()],
        default_root_dir=folder,
    )
    trainer.fit(Model(), DataLoader(TensorDataset(data), batch_size=len(data) // _STEPS))
    return statistics.median(end - begin for begin, end in itertools.pairwise(ends[_WARM_UP:]))


def step_gates(folder: str) -> list[gates.Gate]:
    """Measure a step on one simulated card, relative to the CPU."""
    from hpu_core import HPUAccelerator

    def sample(make: Callable[[], tuple[torch.nn.Module, torch.Tensor]]) -> float:
        return step_seconds(make, HPUAccelerator(), folder) / step_seconds(make, "cpu", folder)

    return [
        gates.measure(f"Lightning step, {name}, of the CPU's", limit, partial(sample, make), most=_MOST)
        for name, make, limit in (("mlp", mlp, 1.08), ("transformer", transformer, 1.02))
    ]


def import_gates(_: str) -> list[gates.Gate]:
    """Measure imports on a machine without a card, relative to what is promised."""

    def sample(statement: str, seconds: float) -> float:
        own = {name: value for name, value in os.environ.items() if not name.startswith("HPU_SIM_")}
        command = [sys.executable, "-c", _TIMED_IMPORT.format(statement)]
        # The hook is timed here, so torch must not run it.
        environment = {**own, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        output = subprocess.check_output(command, env=environment, text=True)  # noqa: S603 - our own interpreter.
        return float(output) / seconds

    hook = "from hpu_core.registration import autoload; autoload()"
    return [
        gates.measure("import hpu_core after torch, of 5 ms", 1, lambda: sample("import hpu_core", 0.005), most=16),
        gates.measure("hook at `import torch`, of 0.5 ms", 1, lambda: sample(hook, 0.0005), most=16),
    ]


def checkpoint_gates(folder: str) -> list[gates.Gate]:
    """Measure saving a checkpoint of tensors on the card."""
    import torch
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    from hpu_core import HPUCheckpointIO

    own, state = HPUCheckpointIO(), {"weight": torch.randn(_BYTES // 4, device="hpu")}
    path = Path(folder, "saved.ckpt")

    def seconds(run: Callable[[], object]) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def save_by_torch() -> None:
        # As durable as what it is compared with.
        with path.open("wb") as file:
            torch.save({name: tensor.cpu() for name, tensor in state.items()}, file)
            file.flush()
            os.fsync(file.fileno())

    def stall() -> float:
        plugin = AsyncCheckpointIO(own)
        try:
            return seconds(lambda: plugin.save_checkpoint(state, path))
        finally:
            plugin.teardown()

    def save() -> float:
        return seconds(lambda: own.save_checkpoint(state, path)) / seconds(save_by_torch)

    return [
        gates.measure("HPUCheckpointIO, of torch.save", 1 / 0.9, save, most=_MOST),
        # A tenth for handing it to the thread.
        gates.measure(
            "stall of AsyncCheckpointIO, of the copy to the host",
            1.1,
            lambda: stall() / seconds(lambda: [tensor.cpu() for tensor in state.values()]),
            most=_MOST,
        ),
    ]


def main() -> int:
    """Measure, and print a row for each gate."""
    groups = {"step": step_gates, "import": import_gates, "checkpoint": checkpoint_gates}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=groups)
    only = parser.parse_args().only
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import hpu_sim

    with tempfile.TemporaryDirectory(prefix="hpu-core-bench-") as folder:
        os.environ["HPU_SIM_RUNTIME_DIR"] = folder
        hpu_sim.activate()
        import torch

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        return gates.report([gate for name, run in groups.items() if only in {None, name} for gate in run(folder)])


if __name__ == "__main__":
    sys.exit(main())
