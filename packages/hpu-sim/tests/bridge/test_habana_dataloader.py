"""`HabanaDataLoader`: its choice by data set and generation, its arguments, and what it makes of transforms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from habana_dataloader import HabanaDataLoader, fetch_habana_unet_loader, habana_dataset
from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUResnetPytorchIterator
from PIL import Image
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

from .images import write_images

if TYPE_CHECKING:
    from pathlib import Path


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for each in self.transforms:
            image = each(image)
        return image


class Resize:
    interpolation = SimpleNamespace(value="bilinear")

    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        return image.resize((self.size[1], self.size[0]))


def _transform(name: str, **attributes: Any) -> Any:
    """Return an instance of a class of this name: the loader knows the transforms of torchvision by their names."""
    return type(name, (), attributes)()


_BILINEAR = SimpleNamespace(value="bilinear")
_CENTER = _transform("CenterCrop", size=(4, 6))
_RANDOM_CROP = _transform("RandomResizedCrop", interpolation=_BILINEAR, size=(4, 6), scale=(1.0, 1.0), ratio=(0.5, 2.0))
_FLIP, _RARE_FLIP = (_transform("RandomHorizontalFlip", p=p) for p in (0.5, 0.3))
_COLORS = _transform("ColorJitter", brightness=(0.8, 1.2), contrast=(0.8, 1.2), saturation=(0.8, 1.2), hue=(-0.1, 0.1))
_NORMALIZE = _transform("Normalize", mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))


class ToTensor:
    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)


class ImageFolder(torch.utils.data.Dataset[Any]):
    def __init__(self, root: Path, *transforms: Any) -> None:
        self.root, self.transform = str(root), Compose(*transforms)
        self.samples = [(str(file), "ab".index(file.parent.name)) for file in sorted(root.glob("*/*"))]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of ten images."""
    write_images(tmp_path, 10)
    return tmp_path


def _on(generation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(habana_dataset, "active_config", lambda: SimpleNamespace(generation=generation))


def test_the_card_decodes_on_gaudi_2(folder: Path) -> None:
    """Images in the order of the folder, normalized by the formula, on the card; the last batch is rounded up."""
    loader = HabanaDataLoader(ImageFolder(folder, Resize((4, 6)), ToTensor(), _NORMALIZE), batch_size=4)
    plain = ImageFolder(folder, Resize((4, 6)), ToTensor())

    batches = list(loader)

    assert isinstance(loader.dataloader, HPUResnetPytorchIterator)
    assert not isinstance(loader, DataLoader)
    assert not hasattr(loader, "sampler")
    assert len(loader) == len(batches) == 3
    assert [label for _, labels in batches for label in labels.tolist()][:10] == [0] * 5 + [1] * 5
    for index in range(8):
        image = batches[index // 4][0][index % 4].cpu()
        with Image.open(plain.samples[index][0]) as source:
            pixels = np.asarray(source.convert("RGB").resize((6, 4), Image.Resampling.BILINEAR))
        mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (_NORMALIZE.mean, _NORMALIZE.std))
        expected = (torch.tensor(pixels).permute(2, 0, 1) / 255 - mean) / std
        torch.testing.assert_close(image, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("transforms", "shape", "dtype"),
    [
        # Unlike torchvision's short side, a number makes a square; without ToTensor the result is uint8.
        ((Resize(8), _NORMALIZE), (8, 8), torch.uint8),
        ((Resize((8, 8)), _CENTER, ToTensor(), _NORMALIZE), (4, 6), torch.float32),
    ],
)
def test_shape_and_dtype_of_images(transforms: Any, shape: tuple[int, int], dtype: torch.dtype, folder: Path) -> None:
    [(images, _), *_] = HabanaDataLoader(ImageFolder(folder, *transforms), batch_size=10)

    assert (images.shape, images.dtype) == ((10, 3, *shape), dtype)


def test_training_pipe_crops_flips_and_changes_colors(folder: Path) -> None:
    dataset = ImageFolder(folder, _RANDOM_CROP, _FLIP, _COLORS, ToTensor(), _NORMALIZE)

    loader = HabanaDataLoader(dataset, batch_size=5, shuffle=True, drop_last=True)

    epochs = [[labels.tolist() for _, labels in loader] for _ in range(3)]
    assert isinstance(loader.dataloader, HPUResnetPytorchIterator)
    assert [sorted(label for batch in epoch for label in batch) for epoch in epochs] == [[0] * 5 + [1] * 5] * 3
    assert len({str(epoch) for epoch in epochs}) > 1
    assert next(iter(loader))[0].shape == (5, 3, 4, 6)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ((Resize((5, 6)), ToTensor(), _NORMALIZE), "sizes must be even"),
        ((Resize((4, 6)), _RARE_FLIP, ToTensor(), _NORMALIZE), "probability 0.5, got 0.3"),
        ((Resize((4, 6)), ToTensor()), "ToTensor without Normalize"),
        ((ToTensor(), _NORMALIZE), "a resize or crop is needed"),
        ((_CENTER, _RANDOM_CROP), "RandomResizedCrop after another of its kind"),
        ((Resize((4, 6)), SimpleNamespace()), "the transform SimpleNamespace is not supported"),
    ],
)
def test_other_transforms_fall_back_with_a_line(
    transforms: Any, message: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the empty value disables the fall-back."""
    dataset = ImageFolder(folder, *transforms)
    monkeypatch.setenv("DATALOADER_FALLBACK_EN", "0")

    assert type(HabanaDataLoader(dataset).dataloader) is DataLoader
    assert message in (text := capsys.readouterr().out)
    assert "Failed to initialize Habana Dataloader" in text
    monkeypatch.setenv("DATALOADER_FALLBACK_EN", "")
    with pytest.raises(ValueError, match=message):
        HabanaDataLoader(dataset)


@pytest.mark.parametrize("option", ["batch_sampler", "collate_fn", "worker_init_fn", "generator", "timeout"])
def test_arguments_of_torch_that_it_refuses(option: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALOADER_FALLBACK_EN", "")

    with pytest.raises(ValueError, match=f"does not support.*`{option}`"):
        HabanaDataLoader(ImageFolder(folder, Resize((4, 6))), **{option: 1})


@pytest.mark.parametrize(
    ("sampler", "shuffles"),
    [
        (lambda data: RandomSampler(data), True),  # noqa: PLW0108 - of the data set
        (lambda data: DistributedSampler(data, 1, 0, shuffle=True), True),
        (lambda data: DistributedSampler(data, 1, 0, shuffle=False), False),
    ],
)
def test_a_sampler_only_says_whether_to_shuffle(
    sampler: Any, shuffles: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = ImageFolder(folder, Resize((4, 6)))

    loader = HabanaDataLoader(dataset, batch_size=5, sampler=sampler(dataset))

    assert loader.dataloader.pipe._reader["shuffle"] is shuffles
    assert "sampler is not supported" in capsys.readouterr().out


def test_each_rank_has_its_slice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(habana_dataset, "_place", lambda: (2, 1))

    loader = HabanaDataLoader(ImageFolder(folder, Resize((4, 6))), batch_size=5, prefetch_factor=9)

    assert [labels.tolist() for _, labels in loader] == [[0, 0, 1, 1, 1]]
    assert loader.dataloader.pipe._prefetch_depth == 3


def test_third_generation_gets_the_loader_of_torch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _on("GAUDI3", monkeypatch)

    loader = HabanaDataLoader(ImageFolder(folder, Resize((4, 6)), ToTensor()), batch_size=5)

    assert type(loader.dataloader) is DataLoader
    assert "Unsupported device" in capsys.readouterr().out
    assert [images.device.type for images, _ in loader] == ["cpu"] * 2


@pytest.mark.parametrize("how", ["generation", "variable"])
def test_first_generation_gets_the_loader_for_the_cpu(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "generation":
        _on("GAUDI", monkeypatch)
    else:
        monkeypatch.setenv("PT_HPU_MEDIA_PIPE", "false")
    monkeypatch.setattr(habana_dataset, "_place", lambda: (2, 0))

    loader = HabanaDataLoader(ImageFolder(folder, Resize((4, 6)), ToTensor()), batch_size=2, pin_memory=True)

    assert isinstance(loader.dataloader.dataset, torch.utils.data.Subset)
    assert [labels.tolist() for _, labels in loader] == [[0, 0], [0, 1], [1]]
    assert len(loader) == 3


@pytest.mark.parametrize(
    ("options", "transforms", "message"),
    [
        ({"pin_memory": False}, (), "aeon needs `pin_memory` True, got False"),
        ({"num_workers": 4}, (), "aeon needs `num_workers` 8, got 4"),
        ({"shuffle": True}, (), "aeon needs `shuffle` False, got True"),
        ({}, (_COLORS,), "aeon does not support the transform ColorJitter"),
        ({}, (_NORMALIZE,), "ImageNet's mean and standard deviation only"),
        ({}, (_RARE_FLIP,), "a probability of 0.5 only"),
        ({}, (_CENTER,), "crops of 224 only"),
    ],
)
def test_what_the_loader_for_the_cpu_refuses(
    options: Any, transforms: Any, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on("GAUDI", monkeypatch)
    monkeypatch.setenv("DATALOADER_FALLBACK_EN", "")

    with pytest.raises(ValueError, match=message):
        HabanaDataLoader(ImageFolder(folder, *transforms), **{"pin_memory": True, **options})


def test_other_data_sets_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """COCO's by name, because the simulator lacks its pipes."""
    dataset: Any = TensorDataset(torch.arange(4))

    assert [batch[0].tolist() for batch in HabanaDataLoader(dataset, batch_size=2)] == [[0, 1], [2, 3]]
    monkeypatch.setenv("DATALOADER_FALLBACK_EN", "")
    with pytest.raises(TypeError, match="not callable"):
        HabanaDataLoader(dataset)
    dataset.data = {"info": {"description": "COCO 2017 Dataset"}}
    with pytest.raises(NotImplementedError, match="not those of COCO"):
        HabanaDataLoader(dataset)
    with pytest.raises(NotImplementedError, match="fetch_habana_unet_loader"):
        fetch_habana_unet_loader([], [], 1, "train")
