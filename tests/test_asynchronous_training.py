"""Trainings on an asynchronous device have the numbers of those whose kernels run at once, bit for bit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hpu_bucketing import BucketBatchSampler, BucketCollate, BucketDataLoader, BucketPlan, HPUGraphs, HPUWarmup
from hpu_compile import HPUCompile
from hpu_core import frameworks
from hpu_ddp import HPUDDPStrategy
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_sim.device.runtime import native
from hpu_testing import SharedRankPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_pytorch: Any = frameworks.current().pytorch()
_LENGTHS = (3, 5, 8, 4, 7, 6, 2, 8) * 2
_PLAN = BucketPlan.from_boundaries([4, 8])
_WIDTH = 8


class _Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Tokens of several lengths."""

    def __len__(self) -> int:
        return len(_LENGTHS)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(1, 20, (_LENGTHS[index],), generator=generator)}


class _Module(_pytorch.LightningModule):  # type: ignore[misc] # The class depends on the framework.
    """Model of tokens with dropout, which keeps its losses and clips its gradients."""

    def __init__(self, *, shards: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, _WIDTH)
        self.body = nn.Sequential(nn.Linear(_WIDTH, 16), nn.GELU(), nn.Linear(16, _WIDTH))
        self.head = nn.Linear(_WIDTH, 20)
        self.shards = shards
        self.losses: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []

    def configure_model(self) -> None:
        """Shard the parts, for FSDP2."""
        if self.shards:
            from torch.distributed.fsdp import fully_shard

            for part in (self.embedding, self.body, self.head):
                fully_shard(part, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss."""
        hidden = self.body(nn.functional.dropout(self.embedding(batch["input_ids"]), 0.1, self.training))
        loss = nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), batch["input_ids"].flatten())
        self.losses.append(loss.detach())
        return loss

    def on_train_end(self) -> None:
        """Copy the weights before the strategy gathers or frees them."""
        parameters = [getattr(each, "_local_tensor", each) for each in self.parameters()]
        self.weights = [each.detach().cpu().clone() for each in parameters]

    def configure_optimizers(self) -> Any:
        """Return an optimizer that has state."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def _strategy(name: str) -> Any:
    if name == "fsdp":
        return HPUFSDPStrategy(auto_wrap_policy={nn.Sequential}, use_orig_params=True)
    if name == "fsdp2":
        return HPUModelParallelStrategy()
    if name.startswith("zero"):
        return HPUDeepSpeedStrategy(stage=int(name[-1]), allgather_bucket_size=10**5, reduce_bucket_size=10**5)
    return HPUDDPStrategy()


def _train(name: str, folder: str) -> list[torch.Tensor]:
    """Return the losses and weights of this rank, on the host."""
    callbacks = {"buckets": [HPUWarmup(), HPUGraphs("body")], "compile": [HPUCompile("whole")]}
    module = _Module(shards=name == "fsdp2")
    trainer = _pytorch.Trainer(
        accelerator="hpu",
        strategy=_strategy(name),
        devices=2,
        max_epochs=2,
        callbacks=callbacks.get(name, []),
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    sampler = BucketBatchSampler(_LENGTHS, _PLAN, batch_size=2, rank=int(os.environ["RANK"]), num_replicas=2)
    trainer.fit(module, BucketDataLoader(_Tokens(), sampler, collate_fn=BucketCollate(_PLAN)))
    return [loss.cpu() for loss in module.losses] + module.weights


def _compare(name: str, folder: str) -> tuple[int, bool]:
    """Return the number of losses and weights, and whether both trainings have the same."""
    torch.set_num_threads(1)
    now = _train(name, folder)
    native().set_execution_mode("later")
    try:
        later = _train(name, folder)
    finally:
        native().synchronize()
        native().set_execution_mode("now")
    return len(now), all(torch.equal(left, right) for left, right in zip(now, later, strict=True))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRankPool]:
    """Return two ranks."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as pool:
        yield pool


@pytest.mark.parametrize(
    ("name", "lazy"),
    [
        ("ddp", True),
        ("buckets", True),
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in ("fsdp", "fsdp2", "zero2", "zero3", "compile")),
    ],
)
def test_a_training_has_the_same_numbers(name: str, lazy: bool, ranks: SharedRankPool, tmp_path: Path) -> None:
    """Buckets with HPU graphs too."""
    for count, are_equal in ranks.call(_compare, name, str(tmp_path), lazy=lazy, seconds=240):
        assert count > 8
        assert are_equal
