"""The data module, alone and in a Trainer on a simulated card."""

import os
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_data import ImageFolderDataModule

from .modules import Classifier, evaluation, trainer, training, write_images


def _module(folder: Path, **options: Any) -> ImageFolderDataModule:
    defaults: dict[str, Any] = {"train_transforms": training(), "val_transforms": evaluation(), "num_workers": 0}
    return ImageFolderDataModule(folder, folder, 4, **{**defaults, **options})


@pytest.mark.parametrize(("cpus", "workers"), [(2, 2), (160, 8)])
def test_a_worker_per_cpu_is_the_default(cpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))

    assert ImageFolderDataModule().num_workers == workers


@pytest.mark.parametrize("decode", ["card", "host"])
def test_trainer_fits_and_validates(decode: Any, folder: Path) -> None:
    """Epochs have other orders, each image is counted once, and the pipes are closed in the end."""
    module, model = _module(folder, decode=decode), Classifier()

    trainer(max_epochs=2).fit(model, module)

    assert len(model.seen) == 4
    assert model.seen[:2] != model.seen[2:]
    assert model.devices == {"hpu"}
    # The sanity check and two epochs.
    assert model.counted == [4, 4, *[4, 4, 2] * 2]
    assert module._loaders == []


class _Interrupt(pl.Callback):
    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 3:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "middle.ckpt")
            trainer.should_stop = True


@pytest.mark.skipif(
    frameworks.current().version < Version("2.2"), reason="Requires: Lightning 2.2, which saves loaders"
)
def test_training_resumes_within_an_epoch(tmp_path: Path) -> None:
    """Batches and weights are those of the undisturbed training."""
    folder = write_images(tmp_path / "images", 16)
    torch.manual_seed(0)
    whole, first, second = (Classifier() for _ in range(3))
    first.load_state_dict(whole.state_dict())
    options: dict[str, Any] = {"max_epochs": 2, "limit_val_batches": 0, "default_root_dir": tmp_path}
    trainer(**options).fit(whole, _module(folder))
    trainer(**options, callbacks=_Interrupt(), min_steps=0).fit(first, _module(folder))

    trainer(**options).fit(second, _module(folder), ckpt_path=tmp_path / "middle.ckpt")

    assert first.seen[:3] + second.seen == whole.seen
    for one, other in zip(whole.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:You are using a custom batch sampler:UserWarning")
def test_prediction_notes_indices(folder: Path) -> None:
    """Lightning wraps the sampler; the host decodes."""
    module = _module(folder)
    module.setup()

    class Labels(Classifier):
        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return batch[1].cpu()

    batches: Any = trainer().predict(Labels(), module.val_dataloader())

    assert [batch.tolist() for batch in batches] == [[0, 0, 0, 0], [0, 1, 1, 1], [1, 1, -100, -100]]


def test_place_is_the_strategys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that split a model have fewer replicas than ranks."""
    module = _module(folder)
    module.setup()
    fit: Any = trainer()
    monkeypatch.setattr(type(fit.strategy), "distributed_sampler_kwargs", {"num_replicas": 3, "rank": 2})
    module.trainer = fit

    sampler: Any = module.train_dataloader().sampler

    assert (sampler.num_replicas, sampler.rank) == (3, 2)


def test_missing_folders_and_transforms_are_named(folder: Path) -> None:
    module = ImageFolderDataModule(folder)
    module.setup()

    with pytest.raises(ValueError, match="`train_transforms` must make tensors of one size of the images, got None"):
        module.train_dataloader()
    with pytest.raises(ValueError, match="`val_dir` must be a folder of images, got None"):
        module.val_dataloader()


def test_command_line_has_the_arguments_of_the_loader(folder: Path) -> None:
    """LightningCLI finds them by the call of `DataLoader`."""
    parser = pytest.importorskip("jsonargparse").ArgumentParser()
    parser.add_class_arguments(ImageFolderDataModule, "data")

    parsed = parser.parse_args([f"--data.train_dir={folder}", "--data.decode=host", "--data.pad_label=null"])

    assert (parsed.data.decode, parsed.data.pad_label, parsed.data.persistent_workers) == ("host", None, True)


def test_missing_torchvision_is_named_with_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)

    with pytest.raises(
        ModuleNotFoundError, match=r"ImageFolderDataModule needs torchvision, .*pip install torchvision"
    ):
        _module(folder).setup()


def test_test_is_validation(folder: Path) -> None:
    module = _module(folder, pad_label=None)
    module.setup()

    assert [labels.tolist() for _, labels in module.test_dataloader()][2] == [1, 1]
