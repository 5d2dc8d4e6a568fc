"""Tests of the loader, alone and in Lightning's Trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_bucketing import BucketDataLoader
from hpu_core import frameworks

from .modules import LENGTHS, Embeddings, Stop, StoppedError, Tokens, loader, trainer


def _indices(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 1])
def test_state_counts_delivered_batches(workers: int) -> None:
    """A worker prefetches batches, which are not delivered yet."""
    complete = _indices(loader())
    source = loader(num_workers=workers)
    batches = iter(source)
    first = [next(batches)["index"].tolist() for _ in range(3)]
    state = source.state_dict()
    del batches

    other = loader()
    other.load_state_dict(state)

    assert state["position"] == 3
    assert first + _indices(other) == complete
    assert _indices(other) == complete


def test_last_batch_has_facts_of_the_batch() -> None:
    source = loader()
    for batch in source:
        info = source.last_batch
        assert info is not None
        assert info.shape == batch["input_ids"].shape[1:]
        assert info.tokens == batch["attention_mask"].sum()
        assert info.padded_tokens == batch["input_ids"].numel()


def test_warmup_batches_have_every_shape_the_largest_first() -> None:
    batches = dict(loader().warmup_batches())

    assert list(batches) == [(16,), (8,), (4,)]
    assert [tuple(batch["input_ids"].shape) for batch in batches.values()] == [(4, 16), (4, 8), (4, 4)]


def test_warmup_batches_need_a_bucket_sampler() -> None:
    plain = BucketDataLoader(Tokens(), _PlainSampler())

    assert plain.state_dict() == {}
    with pytest.raises(TypeError, match="`batch_sampler` must be a BucketBatchSampler, got _PlainSampler"):
        next(plain.warmup_batches())


class _PlainSampler(torch.utils.data.Sampler[list[int]]):
    def __init__(self) -> None:
        pass

    def __iter__(self) -> Any:
        return iter([[0], [1]])


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Options of a Trainer whose strategy is distributed, with one rank in this process."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    yield {"strategy": "ddp"}
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_distributed_trainer_keeps_the_sampler(one_rank: dict[str, Any], tmp_path: Path) -> None:
    model = Embeddings()
    source = loader()

    trainer(tmp_path, **one_rank).fit(model, source, loader(shuffle=False))

    other = loader()
    epochs = []
    for epoch in range(2):
        other.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr] # a BucketBatchSampler
        epochs += _indices(other)
    assert model.seen == epochs


def test_hook_of_a_module_may_make_the_loader(one_rank: dict[str, Any], tmp_path: Path) -> None:
    """Lightning wraps the constructors of loaders that hooks make."""

    class Module(Embeddings):
        def train_dataloader(self) -> Any:
            return loader()

        def predict_dataloader(self) -> Any:
            return loader(shuffle=False)

    model = Module()
    run = trainer(tmp_path, **one_rank, max_epochs=1)
    run.fit(model)

    assert model.seen == _indices(loader())


@pytest.mark.skipif(
    frameworks.current().version < Version("2.3"), reason="Requires: a Lightning that keeps batch samplers in predict"
)
@pytest.mark.filterwarnings("ignore:You are using a custom batch sampler")
def test_predict_has_every_sample(tmp_path: Path) -> None:
    outputs = trainer(tmp_path).predict(Embeddings(), loader(shuffle=False))

    assert torch.cat(outputs).unique().tolist() == list(range(len(LENGTHS)))


@pytest.mark.skipif(
    frameworks.current().version < Version("2.2"), reason="Requires: a Lightning that saves the state of loaders"
)
@pytest.mark.parametrize("batches", [4, 10])
def test_trainer_resumes_within_an_epoch(batches: int, tmp_path: Path) -> None:
    """An epoch has ten batches."""
    complete = Embeddings()
    trainer(tmp_path).fit(complete, loader())
    assert len(complete.seen) == 20
    path = tmp_path / "stopped.ckpt"
    with pytest.raises(StoppedError):
        trainer(tmp_path, callbacks=[Stop(batches, path)]).fit(Embeddings(), loader())

    resumed = Embeddings()
    trainer(tmp_path).fit(resumed, loader(), ckpt_path=path)

    assert resumed.seen == complete.seen[batches:]
