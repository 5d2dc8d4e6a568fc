"""Decoding on the simulated card: the same batches as on the host, and reasons against it."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset
from torchvision import transforms as T  # noqa: N812 - as its users import it

import hpu_sim
from hpu_core import bridge
from hpu_data import CardDecodeError, DataLoader
from hpu_data.folder import files_of

from .modules import evaluation, image_folder, training, write_images


@pytest.fixture(autouse=True)
def card() -> None:
    """Open the card, as a Trainer does."""
    bridge.open_device()


def _both(dataset: Any, *arguments: Any, **options: Any) -> Any:
    """Return pairs of batches from the card and from the host."""
    loaders = [DataLoader(dataset, *arguments, decode=decode, **options) for decode in ("card", "host")]
    return list(zip(*loaders, strict=True))


@pytest.mark.parametrize(
    ("transform", "tolerance"),
    [
        (training, 0.0),
        (lambda: T.Compose([T.Resize((32, 40)), T.RandomVerticalFlip(0.7), T.PILToTensor()]), 0.0),
        (lambda: T.Compose([T.Resize((32, 40), T.InterpolationMode.BICUBIC), T.ToTensor()]), 0.0),
        (lambda: T.Compose([T.RandomResizedCrop(32, interpolation=T.InterpolationMode.NEAREST), T.ToTensor()]), 0.0),
        # The crop lies between pixels of the file, and the scale of the short side is not rounded to whole pixels.
        (evaluation, 4 / 255),
    ],
    ids=["training", "resize", "bicubic", "nearest", "evaluation"],
)
def test_card_and_host_have_the_same_batches(transform: Any, tolerance: float, folder: Path) -> None:
    """Order, labels and random numbers exactly; pixels exactly or within a few levels, by the simulated decoder."""
    for (images, labels), (expected, expected_labels) in _both(image_folder(folder, transform()), 4, True, seed=1):
        assert images.device.type == labels.device.type == "hpu"
        assert (images.dtype, labels.dtype) == (expected.dtype, torch.int64)
        assert labels.tolist() == expected_labels.tolist()
        torch.testing.assert_close(images.cpu(), expected, atol=tolerance, rtol=0)


def test_padding_is_masked_on_both(folder: Path) -> None:
    batches = _both(image_folder(folder, evaluation()), 4)

    assert [[label.tolist() for _, label in pair] for pair in batches][2] == [[1, 1, -100, -100]] * 2
    assert [len(images) for (images, _), _ in batches] == [4, 4, 4]


def test_subset_and_target_transform(folder: Path) -> None:
    dataset = Subset(image_folder(folder, evaluation(), target_transform=lambda label: label + 5), [9, 0, 4])

    [((_, labels), (_, expected))] = _both(dataset, 3)

    assert labels.tolist() == expected.tolist() == [6, 5, 5]


def test_files_with_the_name_of_a_jpeg_are_converted_once(folder: Path) -> None:
    """ImageNet has a PNG and files of four inks."""
    first, second, *_ = sorted(folder.rglob("*.jpg"))
    with Image.open(first) as image, Image.open(second) as other:
        images = image.convert("CMYK"), other.copy()
    images[0].save(first, format="JPEG", quality=100, subsampling=0)
    images[1].save(second, format="PNG")
    dataset = image_folder(folder, T.Compose([T.Resize((32, 32)), T.PILToTensor()]))

    for (found, _), (expected, _) in _both(dataset, 5):
        assert (found.cpu().int() - expected.int()).abs().max() <= 8
    files, _ = files_of(dataset)
    assert files.read(0) == files.read(0)
    assert files.read(0)[0] != str(first)
    assert files.read(2)[0] == dataset.samples[2][0]


def _own_getitem(folder: Path) -> Any:
    class Own(type(image_folder(folder, None))):  # type: ignore[misc] # a class of the stand-in
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    return Own(str(folder), evaluation())


def _with_png(folder: Path) -> Any:
    (folder / "a" / "more.PNG").touch()
    return image_folder(folder, evaluation())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: TensorDataset(torch.zeros(4, 1), torch.zeros(4)), "TensorDataset is not an ImageFolder"),
        (_own_getitem, "Own is not an ImageFolder"),
        (_with_png, r"1 of 11 are not: .*more\.PNG"),
        (lambda folder: image_folder(folder, evaluation(), loader=lambda path: None), "a loader of its own"),
        (lambda folder: image_folder(folder, evaluation(), target_transform=float), "must return an int"),
        (lambda folder: image_folder(folder, T.Compose([T.Resize(8), T.ToTensor()])), "leaves the other side open"),
        (lambda folder: image_folder(folder, T.Compose([T.RandomResizedCrop(8), T.ColorJitter()])), "random one"),
    ],
)
def test_data_sets_that_the_card_cannot_take(make: Any, reason: str, folder: Path) -> None:
    """By choice refused, or decoded on the host with the reason."""
    dataset = make(folder)

    with pytest.raises(CardDecodeError, match=reason):
        next(iter(DataLoader(dataset, 2, decode="card")))
    loader = DataLoader(dataset, 2, drop_last=True)
    loader._decide(loader.order)  # type: ignore[arg-type] # it has one
    assert re.search(reason, str(loader.reason))


def test_joint_transform_is_refused(folder: Path) -> None:
    dataset = image_folder(folder, evaluation())
    dataset.transforms = lambda image, label: (image, label)

    with pytest.raises(CardDecodeError, match="a joint transform"):
        next(iter(DataLoader(dataset, 2, decode="card")))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pad_label": None}, "makes the last batch shorter"),
        ({"collate_fn": list}, "it has a `collate_fn`"),
    ],
)
def test_options_that_the_card_cannot_keep(options: Any, reason: str, folder: Path) -> None:
    with pytest.raises(CardDecodeError, match=reason):
        next(iter(DataLoader(image_folder(folder, evaluation()), 4, decode="card", **options)))


def _without_media(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "habana_frameworks.mediapipe.fn", None)


def _closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bridge, "is_open", lambda: False)


def _first_generation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bridge, "generation", lambda: "GAUDI")


def _release_1_17(patch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AttributeError("module 'inspect' has no attribute 'getargspec'")

    patch.setattr("habana_frameworks.mediapipe.operators.readers.check_user_classes", fail)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without_media, "Intel's media loader failed: ModuleNotFoundError"),
        (_closed, "this process has opened no card"),
        (_first_generation, "GAUDI has no decoder"),
        (_release_1_17, "failed: AttributeError: .*getargspec"),
    ],
)
def test_machines_that_cannot_decode(
    change: Any, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host decodes, and one line has the reason."""
    change(monkeypatch)
    loader = DataLoader(image_folder(folder, evaluation()), 4)
    caplog.set_level("INFO")

    batches = [images.device.type for _ in range(2) for images, _ in loader]

    assert batches == ["cpu"] * 6
    assert loader.decodes_on == "host"
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("hpu-data")]
    assert len(lines) == 1
    assert loader.reason is not None
    assert loader.reason in lines[0]
    with pytest.raises(CardDecodeError, match=reason):
        next(iter(DataLoader(image_folder(folder, evaluation()), 4, decode="card")))


def test_line_in_the_log_names_the_card(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    list(DataLoader(image_folder(folder, evaluation()), 4))

    assert [r.getMessage() for r in caplog.records if "hpu-data" in r.getMessage()] == [
        "hpu-data: 10 samples are decoded on the card: resized pixels differ by a few levels from the host's"
    ]


def test_pipe_is_kept_between_epochs_and_closed_on_request(folder: Path) -> None:
    loader = DataLoader(image_folder(folder, training()), 2, True, drop_last=True)
    list(loader)
    pipe: Any = loader._card
    before = hpu_sim.stats()["allocated_bytes"]
    # An epoch that ends early leaves batches ahead.
    next(iter(loader))
    assert loader._card is pipe

    loader.close()

    assert loader._card is None
    assert hpu_sim.stats()["allocated_bytes"] <= before
    assert len(list(loader)) == 5


def test_forked_process_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(image_folder(folder, evaluation()), 4, decode="card")
    list(loader)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)

    with pytest.raises(RuntimeError, match="this one was forked"):
        next(iter(loader))


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    folder = write_images(tmp_path, 4)
    (folder / "a" / "00.jpg").write_bytes(b"no image")

    with pytest.raises(OSError, match=r"00\.jpg"):
        list(DataLoader(image_folder(folder, evaluation()), 2, decode="card"))
