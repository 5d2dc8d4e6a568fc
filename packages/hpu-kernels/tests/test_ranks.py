"""Trainings with all kernels and with none, on two simulated cards; the helper functions run on both ranks."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from hpu_ddp import HPUDDPStrategy
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy, UlyssesAttention
from hpu_kernels import HPUKernels

from .conftest import OnRanks
from .modules import Block, Classifier, losses_of, make_loader, make_trainer


class Sharded(Classifier):
    """Classifier that FSDP2 shards by blocks."""

    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        for part in (*self.net.blocks, self.net):
            fully_shard(part, mesh=self.device_mesh["data_parallel"])


def _strategy(name: str) -> Any:
    if name == "ddp":
        return HPUDDPStrategy()
    if name == "fsdp2":
        return HPUModelParallelStrategy()
    if name == "fsdp":
        return HPUFSDPStrategy(auto_wrap_policy={Block})
    # Lightning cannot save their optimizer in one file.
    return HPUFSDPStrategy(auto_wrap_policy={Block}, use_orig_params=False, state_dict_type="sharded")


def _fit(strategy: str, *callbacks: Any, optimizer: Any, **options: Any) -> torch.Tensor:
    kind = Sharded if strategy == "fsdp2" else Classifier
    path = options.pop("save", None)
    loader = make_loader(options.pop("batches", 6), rank=int(os.environ["RANK"]))
    module = kind(optimizer, **options.pop("optimizing", {}))
    ckpt = options.pop("ckpt_path", None)

    trainer = make_trainer(
        *callbacks,
        devices=2,
        strategy=_strategy(strategy),
        use_distributed_sampler=False,
        **options,
    )
    trainer.fit(module, loader, ckpt_path=ckpt)
    if path is not None:
        trainer.save_checkpoint(path)
    return torch.stack(module.losses).float().cpu()


OPTIMIZERS: dict[str, Any] = {
    "AdamW": (torch.optim.AdamW, {"lr": 1e-3, "eps": 1e-12}),
    "SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
}


def _compare(strategy: str, name: str, folder: str) -> list[bool]:
    """Return whether losses are the same with all kernels, in a training and when resumed with and without."""
    torch.set_num_threads(1)
    kind, optimizing = OPTIMIZERS[name]
    common: dict[str, Any] = {"optimizer": kind, "optimizing": optimizing}
    kernels = HPUKernels()
    paths = [str(Path(folder) / each) for each in ("plain", "fused")]
    plain = _fit(strategy, save=paths[0], **common)
    fused = _fit(strategy, kernels, save=paths[1], **common)
    resumed = [
        _fit(strategy, *callbacks, ckpt_path=path, max_epochs=2, **common)
        for path, callbacks in ((paths[0], []), (paths[1], []), (paths[0], [kernels]))
    ]
    pairs = ((plain, fused), *((resumed[0], each) for each in resumed[1:]))
    return [len(each) > 0 and torch.allclose(each, other, atol=2e-5) for each, other in pairs]


_QUICK = {("ddp", "AdamW"), ("fsdp2", "SGD")}
_STRATEGIES = ("ddp", "fsdp", "fsdp, flat parameters", "fsdp2")


@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [
        pytest.param(strategy, name, marks=() if (strategy, name) in _QUICK else pytest.mark.slow)
        for strategy in _STRATEGIES
        for name in OPTIMIZERS
    ],
)
def test_training_is_the_same_also_when_resumed(
    strategy: str, optimizer: str, on_ranks: OnRanks, tmp_path: Path
) -> None:
    assert on_ranks(_compare, strategy, optimizer, str(tmp_path), seconds=240) == [[True] * 3] * 2


class Reader(Classifier):
    """Language model of which ranks share sequences."""

    def __init__(self, optimizer: Any = torch.optim.SGD) -> None:
        super().__init__(optimizer)
        self.embed, self.attend, self.read = nn.Embedding(8, 16), UlyssesAttention(), nn.Linear(16, 8)

    def training_step(self, batch: Any) -> torch.Tensor:
        heads = self.embed(batch["input_ids"]).unflatten(2, (4, 4)).transpose(1, 2)
        hidden = self.attend(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)
        labels = batch.get("shift_labels", batch["input_ids"])
        return functional.cross_entropy(self.read(hidden).flatten(0, 1), labels.flatten())


def _share_sequences() -> list[str]:
    """Return the table of a training with kernels, after its losses were those without."""
    losses, tables = [], []

    class Reading(Reader):
        def on_train_end(self) -> None:
            tables.append("".join(map(str, self.trainer.callbacks)))

    for callbacks in ([], [HPUKernels()]):
        strategy = HPUFSDPStrategy(context_parallel_size=2, sharding_strategy="NO_SHARD", use_orig_params=True)
        ids = torch.randint(0, 8, (8, 12), generator=torch.Generator().manual_seed(0))
        texts: Any = [{"input_ids": each, "labels": each} for each in ids]
        loader = DataLoader(texts, batch_size=2)
        losses.append(losses_of(Reading(), *callbacks, loader=loader, devices=2, strategy=strategy))
    assert torch.allclose(losses[0], losses[1], atol=1e-5)
    return tables


def test_ranks_that_share_sequences_attend_by_the_kernel(on_ranks: OnRanks) -> None:
    """The attention of hpu-fsdp calls torch's function with whole sequences."""
    for _, table in on_ranks(_share_sequences, seconds=120):
        assert "4  scaled_dot_product_attention: FusedSDPA" in table
