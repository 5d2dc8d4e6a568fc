"""Benchmark of training steps with HPUProfiler, with PyTorchProfiler and without a profiler, on the CPU.

    python packages/hpu-profiler/bench/step.py

Trainers that differ only in their profiler take turns. Processor times are compared round by round, so that other
load of the machine affects all of them. The limits are those of the median ratio of a recorded step, trace writing
included, to PyTorchProfiler's, and of an unrecorded step to the same step without the time in the profiler. The exit
code is 1 if a limit is missed or cannot be judged. Run it on an idle machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED_LIMIT: Final = 1.05
# The stopwatch that measures the profiler is part of it.
UNRECORDED_LIMIT: Final = 1.02
_MIN_ROUNDS: Final = 15
_MAX_ROUNDS: Final = 80
_STEPS: Final = 40
# The first measured step is the second. The default schedule records the third to the fifth and writes the trace at the
# end of the fifth.
_RECORDED: Final = slice(1, 4)
_UNRECORDED: Final = slice(8, None)


def main() -> int:
    """Measure, print and compare with the limits.

    Returns:
        Exit code: 1 if a limit is missed or cannot be judged.
    """
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # Summaries would hide the results.
    logging.disable(logging.WARNING)
    from lightning.pytorch.profilers import PyTorchProfiler

    from hpu_profiler import HPUProfiler

    makers: dict[str, Callable[[str], Any]] = {
        "none": lambda _: None,
        "PyTorchProfiler": lambda folder: PyTorchProfiler(dirpath=folder, record_module_names=False),
        "HPUProfiler": lambda folder: HPUProfiler(dirpath=folder),
    }
    recorded: dict[str, list[float]] = {name: [] for name in makers}
    own: list[float] = []
    unrecorded: dict[str, list[float]] = {name: [] for name in makers}
    for index in range(_MAX_ROUNDS):
        for name, make in makers.items():
            with tempfile.TemporaryDirectory() as folder:
                profiler = make(folder)
                clock = _Stopwatch(profiler) if name == "HPUProfiler" else None
                times = _fit(profiler, folder, clock)
                if clock is not None:
                    own.append(sum(times[_UNRECORDED]) / (sum(times[_UNRECORDED]) - sum(clock.times[_UNRECORDED])))
            recorded[name].append(1000 * statistics.mean(times[_RECORDED]))
            # The first decile varies less than the minimum.
            unrecorded[name].append(1000 * statistics.quantiles(times[_UNRECORDED], n=10)[0])
        found = _gates(recorded, own)
        if index + 1 >= _MIN_ROUNDS and all(each.verdict != "not judged" for each in found):
            break
    print("processor time of a training step (CPU)")
    for name in makers:
        medians = (statistics.median(times[name]) for times in (recorded, unrecorded))
        print("  {:16} recorded {:8.3f} ms   unrecorded {:8.3f} ms".format(name, *medians))
    return gates.report(found)


class _Stopwatch:
    """Processor time that a profiler takes in the actions of each step.

    Args:
        profiler: The profiler, whose `start` and `stop` are replaced.
    """

    def __init__(self, profiler: Any) -> None:
        self.times: list[float] = []
        self._seconds = 0.0
        for name in ("start", "stop"):
            setattr(profiler, name, self._timed(getattr(profiler, name)))

    def end_step(self) -> None:
        """End a step and begin the next one."""
        self.times.append(self._seconds)
        self._seconds = 0.0

    def _timed(self, function: Callable[[str], None]) -> Callable[[str], None]:
        def call(action_name: str) -> None:
            begin = time.process_time()
            function(action_name)
            self._seconds += time.process_time() - begin

        return call


def _gates(recorded: dict[str, list[float]], own: list[float]) -> list[gates.Gate]:
    """Return the gates, with ratios of times in the same round as samples."""
    pairs = zip(recorded["HPUProfiler"], recorded["PyTorchProfiler"], strict=True)
    return [
        gates.Gate("recorded step, of PyTorchProfiler's", RECORDED_LIMIT, tuple(a / b for a, b in pairs)),
        gates.Gate("unrecorded step, of one without the profiler's time", UNRECORDED_LIMIT, tuple(own)),
    ]


def _fit(profiler: Any, folder: str, stopwatch: _Stopwatch | None) -> list[float]:
    """Train a small transformer; return the seconds of processor time from each batch end to the next."""
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Model(LightningModule):
        """Transformer with four encoder layers of width 128."""

        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(128, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG002 - Lightning's signature
            """Return the loss."""
            loss: torch.Tensor = self.layers(batch[0]).pow(2).mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return AdamW."""
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    ends: list[float] = []

    class Clock(Callback):
        """Callback that records the processor time at the end of each batch."""

        def on_train_batch_end(self, *_: Any) -> None:
            """Record the time."""
            ends.append(time.process_time())
            if stopwatch is not None:
                stopwatch.end_step()

    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(8 * (_STEPS + 1), 32, 128)), batch_size=8)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        profiler=profiler,
        callbacks=[Clock()],
        default_root_dir=Path(folder),
    )
    trainer.fit(Model(), data)
    if stopwatch is not None:
        # The first end begins the first measured step.
        del stopwatch.times[0]
    return [end - begin for begin, end in itertools.pairwise(ends)]


if __name__ == "__main__":
    raise SystemExit(main())
