"""Tests of the mixin for data modules."""

from pathlib import Path
from typing import Any

import pytest

from hpu_bucketing import BucketDataModuleMixin, BucketPlan
from hpu_core import frameworks

from .modules import LENGTHS, Embeddings, Stop, StoppedError, Tokens, trainer

_pytorch: Any = frameworks.current().pytorch()


class Module(BucketDataModuleMixin, _pytorch.LightningDataModule):  # type: ignore[misc] # chosen at run time
    """Data module with training and validation data."""

    def train_dataloader(self) -> Any:
        return self.bucket_dataloader(Tokens(), LENGTHS, batch_size=4, align=4)

    def val_dataloader(self) -> Any:
        return self.bucket_dataloader(Tokens(LENGTHS[:5]), LENGTHS[:5], stage="val", batch_size=4)


def test_all_stages_have_the_plan_of_the_training_lengths(tmp_path: Path) -> None:
    data = Module()
    trainer(tmp_path, max_epochs=1, num_sanity_val_steps=0).fit(Embeddings(), datamodule=data)

    assert data.bucket_plan is not None
    assert data.bucket_plan.boundaries[-1] == 16
    assert all(limit % 4 == 0 for limit in data.bucket_plan.boundaries)


def test_boundaries_of_ones_own_are_kept() -> None:
    data = Module()
    data.bucket_plan = BucketPlan.from_boundaries([16])

    assert data.train_dataloader().batch_sampler.plan is data.bucket_plan


def test_state_has_plan_and_position() -> None:
    data, other = Module(), Module()
    batches = iter(data.train_dataloader())
    next(batches)

    other.load_state_dict(data.state_dict())

    assert other.bucket_plan == data.bucket_plan
    assert len(list(other.train_dataloader())) == len(data.train_dataloader()) - 1


def test_state_of_a_module_without_loaders_is_empty() -> None:
    data = Module()
    data.load_state_dict(Module().state_dict())

    assert data.bucket_plan is None


@pytest.mark.parametrize("batches", [4, 13])
def test_trainer_resumes_within_an_epoch(batches: int, tmp_path: Path) -> None:
    """Lightning before 2.2 saves the state of data modules only."""
    complete, stopped, resumed = Embeddings(), Embeddings(), Embeddings()
    options = {"limit_val_batches": 0}
    trainer(tmp_path, **options).fit(complete, datamodule=Module())
    assert len(complete.seen) == 20
    path = tmp_path / "stopped.ckpt"
    with pytest.raises(StoppedError):
        trainer(tmp_path, callbacks=[Stop(batches, path)], **options).fit(stopped, datamodule=Module())

    trainer(tmp_path, **options).fit(resumed, datamodule=Module(), ckpt_path=path)

    assert resumed.seen == complete.seen[batches:]


def test_evaluation_is_not_shuffled() -> None:
    data = Module()

    assert [data.train_dataloader().batch_sampler.shuffle, data.val_dataloader().batch_sampler.shuffle] == [True, False]
