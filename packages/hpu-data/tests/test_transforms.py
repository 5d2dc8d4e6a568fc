"""Translation of torchvision's transforms: windows, draws, and refusals that name the difference."""

from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T  # noqa: N812 - as its users import it

from hpu_data.errors import CardDecodeError
from hpu_data.transforms import translate

_NORMALIZE = T.Normalize([0.5] * 3, [0.2] * 3)


@pytest.mark.parametrize("size", [(400, 300), (30, 900), (900, 30), (7, 5)])
def test_random_crops_are_drawn_as_torchvision_draws_them(size: tuple[int, int]) -> None:
    """Seed by seed, with the flips that follow, also where no crop fits and the central one is taken."""
    crop = T.RandomResizedCrop(32, scale=(0.3, 0.9))
    translated = translate(T.Compose([crop, T.RandomHorizontalFlip(0.3), T.RandomVerticalFlip()]))
    image = Image.new("RGB", size)

    for seed in range(50):
        window, flipped = translated.draw(size, torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        top, left, height, width = crop.get_params(image, crop.scale, crop.ratio)
        pixels = [share * side for share, side in zip(window, size * 2, strict=True)]
        assert pixels == pytest.approx([left, top, width, height], abs=1e-9)
        assert flipped == [bool(torch.rand(1) < 0.3), bool(torch.rand(1) < 0.5)]


@pytest.mark.parametrize("size", [(400, 301), (200, 451), (64, 64)])
@pytest.mark.parametrize("resize", [40, [40], (44, 60)])
def test_resize_and_center_crop_become_one_window(size: tuple[int, int], resize: Any) -> None:
    """The short side is scaled, where the vendor's own loader makes a square."""
    window, _ = translate(T.Compose([T.Resize(resize), T.CenterCrop((32, 36))])).draw(size, torch.Generator())
    if isinstance(resize, tuple):
        height, width = resize
    else:
        scale = 40 / min(size)
        width, height = (int(side * scale) for side in size)

    left, top = round((width - 36) / 2), round((height - 32) / 2)
    expected = [left / width, top / height, 36 / width, 32 / height]
    assert window == pytest.approx(expected)


def test_result_of_a_translation() -> None:
    found = translate(
        T.Compose([T.Resize((40, 36), T.InterpolationMode.BICUBIC), T.Compose([T.ToTensor()]), _NORMALIZE])
    )

    assert (found.size, found.interpolation, found.is_float) == ((36, 40), "bicubic", True)
    assert found.normalization == ((0.5,) * 3, (0.2,) * 3)
    assert translate(T.Compose([T.Resize((40, 36)), T.PILToTensor()])).is_float is False


def test_finish_flips_and_normalizes_as_torchvision() -> None:
    images = torch.randint(0, 256, (3, 3, 8, 6), dtype=torch.uint8)
    found = translate(
        T.Compose([T.Resize((8, 6)), T.RandomVerticalFlip(), T.RandomHorizontalFlip(), T.ToTensor(), _NORMALIZE])
    )

    finished = found.finish(images, torch.tensor([[1, 0], [0, 1], [0, 0]]))

    changed = torch.stack([images[0].flip(2), images[1].flip(1), images[2]])
    assert torch.equal(finished, torch.stack([_NORMALIZE(image.float().div(255)) for image in changed]))


class Own:
    def __call__(self, image: Any) -> Any:
        return image


@pytest.mark.parametrize(
    ("steps", "difference"),
    [
        ([Own()], "Own is not a transform of torchvision"),
        ([T.Grayscale()], "the card has no Grayscale"),
        ([T.Resize((8, 8)), T.ColorJitter()], "fixed order of its parts there, torchvision's a random one"),
        ([T.Resize(8)], "Resize with one number leaves the other side open"),
        ([T.ToTensor()], "a RandomResizedCrop, a Resize or a CenterCrop is needed"),
        ([T.Resize((9, 8))], "even sizes, got 8 x 9"),
        ([T.CenterCrop(8)], "pads images that are smaller"),
        ([T.Resize(8), T.CenterCrop(10)], "CenterCrop must not be larger than Resize"),
        ([T.Resize((8, 8), T.InterpolationMode.HAMMING)], "no filter 'hamming', and would take bilinear"),
        ([T.Resize((8, 8), max_size=9)], "without `max_size`"),
        ([T.Resize((8, 8)), T.RandomResizedCrop(8)], "no Resize before it"),
        ([T.Resize((8, 8)), T.Resize((8, 8))], "Resize must come once"),
        ([T.RandomHorizontalFlip(), T.RandomResizedCrop(8)], "RandomResizedCrop comes later"),
        ([T.ToTensor(), T.Resize((8, 8))], "Resize comes later"),
        ([T.RandomResizedCrop(8), T.Resize((8, 8))], "Resize comes later"),
        ([T.Resize((8, 8)), _NORMALIZE], "after the conversion to float32"),
        ([T.Resize((8, 8)), T.ToTensor(), T.Normalize([0.5], [0.5])], "with three values"),
    ],
)
def test_what_the_card_does_otherwise_is_refused_by_name(steps: Any, difference: str) -> None:
    with pytest.raises(CardDecodeError, match=difference):
        translate(T.Compose(steps))


def test_a_resize_without_antialias_is_refused() -> None:
    resize = T.Resize((8, 8))
    resize.antialias = False

    with pytest.raises(CardDecodeError, match="`antialias=False`"):
        translate(resize)


@pytest.mark.parametrize(
    ("name", "attributes", "difference"),
    [
        ("ToDtype", {"dtype": torch.float32, "scale": True}, None),
        ("ToDtype", {"dtype": torch.float32, "scale": False}, "must scale to float32"),
        ("ConvertImageDtype", {"dtype": torch.float16}, "must scale to float32, got torch.float16"),
        ("ToImage", {}, None),
    ],
)
def test_transforms_of_version_2(name: str, attributes: Any, difference: str | None) -> None:
    each = type(name, (), {"__module__": "torchvision.transforms.v2._misc", **attributes})()
    steps = T.Compose([T.Resize((8, 8)), each])

    if difference is None:
        assert translate(steps).is_float is (name == "ToDtype")
        return
    with pytest.raises(CardDecodeError, match=difference):
        translate(steps)
