"""Transforms of torchvision, translated for a decoder that crops and resizes, with torchvision's own random draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_data.errors import CardDecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FILTERS", "CardTransform", "translate"]

Size = tuple[int, int]
"""Width and height in pixels."""
Window = tuple[float, float, float, float]
"""x, y, width and height as fractions of an image."""

FILTERS: Final = {
    "bilinear": "BI_LINEAR",
    "bicubic": "BICUBIC",
    "lanczos": "LANCZOS",
    "nearest": "NEAREST",
    "box": "BOX",
}
"""Filters of the decoder, by torchvision's interpolation. It has no HAMMING: the vendor's own loader takes bilinear."""
_ATTEMPTS: Final = 10
_CHANNELS: Final = 3


@dataclass(slots=True)
class CardTransform:
    """Transform of an image folder for the card, to which `translate` adds one of torchvision after the other.

    Attributes:
        size: Width and height of the result; zeros while they are open.
        interpolation: Name of torchvision's filter.
        window: Function that returns the part of an image that is resized, by its size and a generator.
        flips: Flips in their order: whether it is vertical, and its probability.
        is_float: Whether the result is float32 from 0 to 1, rather than uint8.
        normalization: Mean to subtract from each channel, and standard deviation to divide by; empty for none.
        resize: A Resize that a CenterCrop may follow; None if there is none.
    """

    size: Size = (0, 0)
    interpolation: str = "bilinear"
    window: Callable[[Size, torch.Generator], Window] = lambda *_: (0.0, 0.0, 1.0, 1.0)
    flips: list[tuple[bool, float]] = field(default_factory=list)
    is_float: bool = False
    normalization: tuple[tuple[float, ...], ...] = ()
    resize: Any = None

    def draw(self, size: Size, generator: torch.Generator) -> tuple[Window, list[bool]]:
        """Return an image's window, and whether it is flipped horizontally and vertically.

        The random numbers are torchvision's, in its order.
        """
        window = self.window(size, generator)
        flips = [False, False]
        for is_vertical, probability in self.flips:
            flips[is_vertical] ^= bool(torch.rand(1, generator=generator) < probability)
        return window, flips

    def finish(self, images: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
        """Flip and normalize decoded images, as torchvision does.

        Args:
            images: `(images, 3, height, width)`, uint8.
            flips: `(images, 2)`, whether each is flipped horizontally and vertically.
        """
        for is_vertical in {is_vertical for is_vertical, _ in self.flips}:
            mirrored = images.flip(2 if is_vertical else 3)
            images = torch.where(flips[:, int(is_vertical)].bool().view(-1, 1, 1, 1), mirrored, images)
        if self.is_float:
            images = images.to(torch.float32).div(255)
        if self.normalization:
            # torchvision's own function reads the deviations, which would hold the host in each batch.
            mean, std = (torch.tensor(each, device=images.device).view(-1, 1, 1) for each in self.normalization)
            images = images.sub(mean).div(std)
        return images


def translate(transform: Any) -> CardTransform:
    """Return a transform of torchvision (version 1 or 2) for the card's decoder.

    Raises:
        CardDecodeError: It would be another transform there; the message has the difference.
    """
    found = CardTransform()
    for each in _flatten(transform):
        name = type(each).__name__
        if not type(each).__module__.startswith("torchvision.transforms"):
            raise CardDecodeError(f"{name} is not a transform of torchvision")
        if name not in _ADD:
            raise CardDecodeError(_DIFFERENCES.get(name, f"the card has no {name}"))
        _ADD[name](found, each)
    if found.size == (0, 0):
        is_open = "and Resize with one number leaves the other side open"
        is_missing = "and a RandomResizedCrop, a Resize or a CenterCrop is needed"
        raise CardDecodeError(f"images must have one size, {is_missing if found.resize is None else is_open}")
    if found.size[0] % 2 or found.size[1] % 2:
        raise CardDecodeError(f"the card's decoder needs even sizes, got {found.size[0]} x {found.size[1]}")
    return found


def _flatten(transform: Any) -> list[Any]:
    if type(transform).__name__ == "Compose":
        return [part for each in transform.transforms for part in _flatten(each)]
    return [transform]


def _add_float(found: CardTransform, each: Any) -> None:
    dtype, scale = getattr(each, "dtype", torch.float32), getattr(each, "scale", True)
    if dtype is not torch.float32 or not scale:
        raise CardDecodeError(f"{type(each).__name__} must scale to float32, got {dtype}, scale={scale}")
    found.is_float = True


def _add_flip(found: CardTransform, each: Any) -> None:
    found.flips.append((type(each).__name__ == "RandomVerticalFlip", float(each.p)))


def _add_normalize(found: CardTransform, each: Any) -> None:
    values = tuple(tuple(float(value) for value in values) for values in (each.mean, each.std))
    if not found.is_float or found.normalization or {*map(len, values)} != {_CHANNELS}:
        raise CardDecodeError("Normalize must come once, after the conversion to float32, with three values")
    found.normalization = values


def _add_resize(found: CardTransform, each: Any) -> None:
    _check_place(found, each)
    if getattr(each, "max_size", None) is not None or found.resize is not None:
        raise CardDecodeError("Resize must come once, without `max_size`")
    found.resize = each
    if pair := _pair(each.size):
        found.size = pair[1], pair[0]


def _add_center_crop(found: CardTransform, each: Any) -> None:
    _check_place(found, each)
    if found.resize is None:
        raise CardDecodeError("CenterCrop without Resize pads images that are smaller, and the card does not")
    size = found.resize.size
    pair, crop, short = _pair(size), _pair(each.size), size if isinstance(size, int) else min(size)
    if crop is None or max(crop) > short:
        raise CardDecodeError("CenterCrop must not be larger than Resize: the card does not pad")

    def window(size: Size, generator: torch.Generator) -> Window:
        del generator
        height, width = pair or _scaled(size, short)
        top, left = round((height - crop[0]) / 2.0), round((width - crop[1]) / 2.0)
        return left / width, top / height, crop[1] / width, crop[0] / height

    found.size, found.window, found.resize = (crop[1], crop[0]), window, None


def _add_random_resized_crop(found: CardTransform, each: Any) -> None:
    _check_place(found, each)
    size = _pair(each.size)
    if size is None or found.resize is not None:
        raise CardDecodeError("RandomResizedCrop must have a height and a width, and no Resize before it")
    scale, ratio = tuple(each.scale), tuple(each.ratio)
    found.size = size[1], size[0]
    found.window = lambda size, generator: _random_window(size, scale, ratio, generator)


_ADD: Final[dict[str, Callable[[CardTransform, Any], None]]] = {
    **dict.fromkeys(("ToImage", "PILToTensor"), lambda *_: None),
    **dict.fromkeys(("ToTensor", "ConvertImageDtype", "ToDtype"), _add_float),
    **dict.fromkeys(("RandomHorizontalFlip", "RandomVerticalFlip"), _add_flip),
    "Normalize": _add_normalize,
    "Resize": _add_resize,
    "CenterCrop": _add_center_crop,
    "RandomResizedCrop": _add_random_resized_crop,
}
_DIFFERENCES: Final = {"ColorJitter": "ColorJitter has a fixed order of its parts there, torchvision's a random one"}


def _check_place(found: CardTransform, each: Any) -> None:
    """Check a transform that resizes or crops, and take its filter over.

    Raises:
        CardDecodeError: It comes too late, or has a filter that the card has not.
    """
    is_done = found.size != (0, 0) and found.resize is None
    if found.is_float or found.flips or is_done:
        raise CardDecodeError(f"the card resizes and crops once and first, and {type(each).__name__} comes later")
    if not hasattr(each, "interpolation"):
        return
    name = str(getattr(each.interpolation, "value", each.interpolation))
    if name not in FILTERS:
        raise CardDecodeError(f"the card's decoder has no filter {name!r}, and would take bilinear")
    if getattr(each, "antialias", True) is False:
        raise CardDecodeError("the card's resize is taken to be antialiased, got `antialias=False`")
    found.interpolation = name


def _pair(size: Any) -> tuple[int, int] | None:
    """Return a height and a width; None if there is one number, which is the short side's."""
    return None if isinstance(size, int) or len(size) == 1 else (int(size[0]), int(size[1]))


def _scaled(size: Size, short: int) -> tuple[int, int]:
    """Return the height and width of an image whose short side is scaled."""
    width, height = size
    long = int(short * max(size) / min(size))
    return (long, short) if width <= height else (short, long)


def _random_window(
    size: Size, scale: tuple[float, ...], ratio: tuple[float, ...], generator: torch.Generator
) -> Window:
    """Return the window of RandomResizedCrop. Source: `get_params` of torchvision."""
    width, height = size
    logs = torch.log(torch.tensor(ratio))
    for _ in range(_ATTEMPTS):
        area = width * height * torch.empty(1).uniform_(scale[0], scale[1], generator=generator).item()
        log_ratio = torch.empty(1).uniform_(float(logs[0]), float(logs[1]), generator=generator)
        aspect = torch.exp(log_ratio).item()
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = int(torch.randint(0, height - h + 1, (1,), generator=generator))
            left = int(torch.randint(0, width - w + 1, (1,), generator=generator))
            return left / width, top / height, w / width, h / height
    w, h = width, height
    if width / height < min(ratio):
        h = round(w / min(ratio))
    elif width / height > max(ratio):
        w = round(h * max(ratio))
    return (width - w) // 2 / width, (height - h) // 2 / height, w / width, h / height
