"""Tests of the data module for folders of images."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler, TensorDataset

from hpu_compat._datamodule import HPUDataModule, MediaApiDataLoader


def _with_data(**options: Any) -> HPUDataModule:
    """Return a data module whose folders have been read."""
    module = HPUDataModule(num_workers=0, pin_memory=False, **options)
    module.dataset_train = TensorDataset(torch.arange(10))
    module.dataset_val = TensorDataset(torch.arange(7))
    return module


def test_missing_torchvision_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes the import fail.
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)

    with pytest.raises(ModuleNotFoundError, match=r"HPUDataModule needs torchvision, .*`pip install torchvision`"):
        HPUDataModule("train", "val").setup("fit")


def test_shuffle_is_refused() -> None:
    with pytest.raises(ValueError, match="`shuffle` must be False, got True"):
        HPUDataModule(shuffle=True)


def test_training_is_shuffled_by_the_seed() -> None:
    first, second, other = (
        [batch[0].tolist() for batch in _with_data(batch_size=4, seed=seed).train_dataloader()] for seed in (1, 1, 2)
    )

    assert first == second != other
    assert [len(batch) for batch in first] == [4, 4]


def test_validation_and_test_are_in_order() -> None:
    module = _with_data(batch_size=4, drop_last=False)

    for loader in (module.val_dataloader(), module.test_dataloader()):
        assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("distributed", [True, False])
def test_ranks_load_their_share(distributed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning made it so whatever `distributed` was."""
    module = _with_data(batch_size=2, distributed=distributed)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares = []
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append([batch[0].tolist() for batch in module.train_dataloader()])

    assert len(shares[0]) == len(shares[1]) == 2
    assert len({number for share in shares for batch in share for number in batch}) == 8


@pytest.mark.parametrize(
    ("sampler", "options", "shuffles"),
    [
        (None, {}, False),
        (None, {"shuffle": True}, True),
        (RandomSampler(range(10)), {}, True),
        (DistributedSampler(TensorDataset(torch.arange(10)), 1, 0, shuffle=False), {}, False),
    ],
)
def test_media_loader_takes_the_arguments_of_torch(sampler: Any, options: Any, shuffles: bool) -> None:
    """A sampler only says whether to shuffle, as the archived loader took it."""
    loader = MediaApiDataLoader(TensorDataset(torch.arange(10)), 4, sampler=sampler, drop_last=True, **options)

    numbers = [number for batch in loader for number in batch[0].tolist()]

    assert len(numbers) == 8
    assert (numbers != sorted(numbers)) is shuffles


def test_missing_hpu_data_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpu_data", None)
    monkeypatch.delitem(sys.modules, "hpu_compat._datamodule")

    with pytest.raises(
        ModuleNotFoundError, match="`HPUDataModule` needs hpu-data, which is not installed: pip install"
    ):
        importlib.import_module("hpu_compat._datamodule")


@pytest.mark.parametrize(("transforms", "expected"), [([abs, str], (abs, str)), (abs, abs), (None, None)])
def test_torchvision_composes_several_transforms(
    transforms: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_folder = SimpleNamespace(ImageFolder=lambda _, transform: transform)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", image_folder)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", SimpleNamespace(Compose=tuple))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    module = HPUDataModule(train_transforms=transforms, val_transforms=str)
    module.setup("fit")

    datasets: Any = (module.dataset_train, module.dataset_val)

    assert datasets == (expected, str)
