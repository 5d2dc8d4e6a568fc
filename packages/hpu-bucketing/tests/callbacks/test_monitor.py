"""Tests of the monitor on the CPU, where a new shape stands for a compilation."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_bucketing import (
    BucketBatchSampler,
    BucketDataLoader,
    HPUWarmup,
    RecompilationError,
    RecompilationMonitor,
    RecompilationWarning,
)
from hpu_bucketing.callbacks._shapes import tensor_shapes
from hpu_core import frameworks

from ..modules import LENGTHS, PLAN, Embeddings, Tokens, loader, trainer  # noqa: TID252 - pytest gives tests no absolute name

_loggers: Any = frameworks.current().pytorch("loggers.logger")


class Rows(_loggers.DummyLogger):  # type: ignore[misc] # chosen at run time
    """Logger that keeps its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rows.append(metrics)


def _pad_to_longest(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    rows = torch.nn.utils.rnn.pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    index = torch.stack([sample["index"] for sample in samples])
    return {"index": index, "input_ids": rows, "attention_mask": (rows > 0).long()}


def _unpadded() -> Any:
    """Return a loader whose collate function does not know the buckets."""
    sampler = BucketBatchSampler(LENGTHS, PLAN, batch_size=4)
    return BucketDataLoader(Tokens(), sampler, collate_fn=_pad_to_longest)


@pytest.mark.parametrize("warmup", [[], [HPUWarmup()]])
def test_buckets_are_not_reported(warmup: list[Any], tmp_path: Path) -> None:
    monitor = RecompilationMonitor(grace_steps=0)

    trainer(tmp_path, callbacks=[*warmup, monitor]).fit(Embeddings(), loader())

    assert monitor.violations == []


def test_new_shape_is_reported_with_tensor_and_bucket(tmp_path: Path) -> None:
    monitor = RecompilationMonitor()

    with pytest.warns(RecompilationWarning, match="a card would compile a graph in batch"):
        trainer(tmp_path, callbacks=[monitor]).fit(Embeddings(), _unpadded())

    assert len(monitor.violations) == len(set(monitor.violations))
    assert "of epoch 0: `input_ids` has the new shape (4, 14); the nearest bucket is 16: pad" in " ".join(
        monitor.violations
    )


def test_error_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(RecompilationError, match="pad to it with a BucketCollate of the plan"):
        trainer(tmp_path, callbacks=[RecompilationMonitor("error")]).fit(Embeddings(), _unpadded())


def test_smaller_last_batch_is_explained(tmp_path: Path) -> None:
    from hpu_bucketing.callbacks.monitor import _nearest

    assert "the number of samples is another one" in _nearest((3, 16), PLAN)


def test_loggers_get_what_padding_costs(tmp_path: Path) -> None:
    logger = Rows()
    run = trainer(tmp_path, callbacks=[RecompilationMonitor()], max_epochs=1, logger=logger, log_every_n_steps=5)

    run.fit(Embeddings(), loader())

    rows = [row for row in logger.rows if "bucketing/padding_share" in row]
    infos = [loader().batch_sampler.batch_info(step) for step in range(10)]  # type: ignore[union-attr] # a BucketBatchSampler
    for row, part in zip(rows, (infos[:5], infos[5:]), strict=True):
        share = 1 - sum(info.tokens for info in part) / sum(info.padded_tokens for info in part)
        assert row["bucketing/padding_share"] == pytest.approx(share)
        assert row["bucketing/tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.ones(2), [("batch", (2,))]),
        ({"x": torch.ones(2), "y": [torch.ones(3), 1]}, [("x", (2,)), ("y[0]", (3,))]),
        ((torch.ones(2), 5), [("batch[0]", (2,))]),
        (7, []),
    ],
)
def test_tensors_are_named(batch: Any, expected: list[Any]) -> None:
    assert list(tensor_shapes(batch)) == expected


def test_unknown_action_is_an_error() -> None:
    with pytest.raises(ValueError, match="`action` must be 'warn' or 'error', got 'stop'"):
        RecompilationMonitor("stop")  # type: ignore[arg-type]


def test_plain_loader_is_watched_too(tmp_path: Path) -> None:
    monitor = RecompilationMonitor(grace_steps=1)
    plain = torch.utils.data.DataLoader(Tokens(), batch_size=6, collate_fn=_pad_to_longest)

    with pytest.warns(RecompilationWarning, match="pad to a few sizes"):
        trainer(tmp_path, callbacks=[monitor], max_epochs=1).fit(Embeddings(), plain)
