"""Profiles of two simulated cards, and the report on their traces."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from hpu_ddp import HPUDDPStrategy
from hpu_profiler import HPUProfiler
from hpu_testing.modules import Classifier, make_trainer
from hpu_testing.process_groups import leave_process_group

if TYPE_CHECKING:
    from hpu_testing import SharedRankPool


class _SlowPoints(Dataset[Any]):
    """Points that are slow to load."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # Much longer than the work of a step, as the delay of the rank.
        time.sleep(0.05)
        return torch.ones(4), index % 2


class _Faulty(Classifier):
    """Classifier that reads the loss in each step, and is slow on rank 1."""

    total_loss = 0.0

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Return the loss."""
        loss = self.compute_loss(self.augment(batch))
        self.total_loss += loss.item()
        return loss

    def augment(self, batch: Any) -> Any:
        """Return the batch, on one rank after a delay."""
        if self.global_rank == 1:
            time.sleep(0.4)
        return batch

    def configure_optimizers(self) -> Any:
        """Return an optimizer that reads nothing."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def _train(folder: str) -> None:
    """Train for six steps, of which the profiler records the third to the fifth."""
    profiler = HPUProfiler(dirpath=folder, filename="summary", record_shapes=True, with_stack=True)
    make_trainer(strategy=HPUDDPStrategy(), profiler=profiler).fit(_Faulty(), DataLoader(_SlowPoints(), batch_size=2))
    leave_process_group()


def test_report_names_the_straggler_and_the_lines_of_faults(ranks: SharedRankPool, tmp_path: Path) -> None:
    """Steps of both ranks take the same time, because the fast one waits in the all-reduce."""
    ranks.call(_train, str(tmp_path), seconds=120)
    command = [str(Path(sys.executable).with_name("hpu-profiler")), "report", str(tmp_path), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    (stage,) = report["stages"]
    fast, slow = stage["ranks"]
    assert report["simulated"]
    assert all("HPU time" in (tmp_path / f"fit-summary-{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1))
    assert [rank["steps"] for rank in stage["ranks"]] == [3, 3]
    assert stage["straggler"] == "rank 1"
    assert fast["exposed_comm"] > slow["exposed_comm"]
    assert fast["step_time_excl_comm_wait"] < slow["step_time_excl_comm_wait"]
    assert {each["name"] for each in fast["collectives"]} == {"allreduce"}
    lines = {each["kind"]: each["location"].rpartition(" ")[2] for each in stage["findings"]}
    assert [each["kind"] for each in stage["findings"][:2]] == ["straggler", "data loading"]
    expected = {"straggler": "augment", "data loading": "__getitem__", "host sync": "training_step"}
    assert lines.items() >= expected.items()
