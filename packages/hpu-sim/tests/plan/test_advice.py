"""Advice is right: a program to which it is applied fits, with the peak that the advice names."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from hpu_sim.plan.execution import record_call
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.search import advise
from hpu_sim.plan.session import Options
from hpu_sim.prediction.hardware import usable_memory
from hpu_sim.prediction.reserve import verdict

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Recording

# Lightning 2.0 imports HMP, which the bridge of the simulated release does not have.
pytest.importorskip("lightning", exc_type=ImportError)
from lightning import LightningModule, Trainer

pytestmark = [
    pytest.mark.needs_torch("2.8", "interfaces for the planner"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]


#: Rows on the device per sample.
ROWS = 10_000


@dataclass(frozen=True)
class Program:
    """Program with what advice may change.

    Attributes:
        batch: Samples.
        hidden: Width of a block.
        precision: Precision of the Trainer.
        strategy: Strategy of the Trainer.
        recomputed: Number of blocks that the model itself recomputes.
    """

    batch: int
    hidden: int
    precision: Any = "32-true"
    strategy: str = "auto"
    recomputed: int = 0

    def __call__(self) -> None:
        data = TensorDataset(torch.rand(self.batch * 8, 1))
        trainer = Trainer(precision=self.precision, strategy=self.strategy, logger=False)
        trainer.fit(_Module(self.hidden, self.recomputed), DataLoader(data, batch_size=self.batch))


class _Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = inputs + self.down(torch.tanh(self.up(inputs)))
        return outputs


class _Module(LightningModule):
    def __init__(self, hidden: int, recomputed: int) -> None:
        super().__init__()
        self.first = nn.Linear(1, hidden)
        self.blocks = nn.ModuleList(_Block(hidden) for _ in range(4))
        self.recomputed = recomputed

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        del batch_idx
        hidden = self.first(batch[0]).repeat_interleave(ROWS, 0)
        for index, block in enumerate(self.blocks):
            hidden = checkpoint(block, hidden, use_reentrant=False) if index < self.recomputed else block(hidden)
        loss: torch.Tensor = hidden.mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def _apply(program: Program, settings: dict[str, str], nodes: int) -> Recording:
    """Return the recording of a program whose own text has the settings."""
    strategy = settings.get("strategy", program.strategy)
    changed = Program(
        int(settings.get("batch_size", program.batch)),
        program.hidden,
        settings.get("precision", program.precision),
        strategy,
        int(settings.get("checkpoint", "0")),
    )
    return record_call(changed, Options(devices=2 if nodes > 1 else 1, nodes=nodes))


@pytest.mark.parametrize(
    ("program", "nodes", "expected"),
    [
        pytest.param(Program(batch=24, hidden=4096), 1, {"checkpoint", "batch_size"}, id="activations"),
        pytest.param(Program(batch=1, hidden=16384), 4, {"strategy", "precision"}, id="states", marks=pytest.mark.slow),
        pytest.param(
            Program(batch=5, hidden=16384), 4, {"strategy", "checkpoint"}, id="combination", marks=pytest.mark.slow
        ),
    ],
)
def test_a_program_with_the_advice_fits(program: Program, nodes: int, expected: set[str]) -> None:
    pytest.importorskip("hpu_core")
    options = Options(devices=2 if nodes > 1 else 1, nodes=nodes)

    @functools.cache
    def record(options: Options) -> Recording:
        if "deepspeed" in (options.strategy or ""):
            raise ValueError("DeepSpeed runs once in a process")
        return record_call(program, options)

    recording = record(options)
    assert memory_plan(recording).peak_bytes > usable_memory("GAUDI2")

    found, _ = advise(record, options, recording, "GAUDI2")
    fitting = [each for each in found if each.fits]

    assert expected <= {name for each in fitting for name in each.settings}
    for advice in fitting:
        peak = memory_plan(_apply(program, advice.settings, nodes)).peak_bytes
        assert verdict(peak, usable_memory("GAUDI2")) == "fits", advice.title
        assert peak == pytest.approx(advice.peak_bytes, rel=0.01), advice.title
