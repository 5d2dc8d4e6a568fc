"""Transforms of torchvision, translated for a decoder that crops and resizes, with torchvision's own random draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from hpu_data.errors import CardDecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CardTransform", "Draw", "translate"]

Size = tuple[int, int]
"""Width and height in pixels."""
Window = tuple[float, float, float, float]
"""x, y, width and height as fractions of an image."""

# Filters of the decoder, by torchvision's interpolation. It has no HAMMING: the vendor's own loader takes bilinear.
_FILTERS: Final = ("bilinear", "bicubic", "lanczos", "nearest", "box")
_ATTEMPTS: Final = 10
_CHANNELS: Final = 3
_TO_FLOAT: Final = frozenset({"ToTensor", "ConvertImageDtype", "ToDtype"})


class Draw(NamedTuple):
    """What the random transforms do to one image."""

    window: Window
    is_flipped: bool
    is_flipped_vertically: bool


@dataclass(frozen=True, slots=True)
class CardTransform:
    """Transform of an image folder for the card.

    Attributes:
        size: Width and height of the result.
        interpolation: Name of the filter.
        window: Function that returns the part of an image that is resized, by its size and a generator.
        flips: Probabilities of flips in their order, by whether they are vertical.
        is_float: Whether the result is float32 from 0 to 1, rather than uint8.
        mean: Mean of each channel, to subtract.
        std: Standard deviation of each channel, to divide by.
    """

    size: Size
    interpolation: str
    window: Callable[[Size, torch.Generator], Window]
    flips: tuple[tuple[bool, float], ...] = ()
    is_float: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def draw(self, size: Size, generator: torch.Generator) -> Draw:
        """Return what happens to an image: torchvision's random numbers, in its order."""
        window = self.window(size, generator)
        flipped = [False, False]
        for is_vertical, probability in self.flips:
            flipped[is_vertical] ^= bool(torch.rand(1, generator=generator) < probability)
        return Draw(window, *flipped)

    def finish(self, images: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
        """Flip and normalize decoded images, as torchvision does.

        Args:
            images: `(images, 3, height, width)`, uint8.
            flips: `(images, 2)`, whether each is flipped horizontally and vertically.
        """
        for column, axis in ((0, 3), (1, 2)):
            if any(is_vertical == bool(column) for is_vertical, _ in self.flips):
                images = torch.where(flips[:, column].bool().view(-1, 1, 1, 1), images.flip(axis), images)
        if self.is_float:
            images = images.to(torch.float32).div(255)
        if self.mean is not None and self.std is not None:
            mean, std = (torch.tensor(each, device=images.device).view(-1, 1, 1) for each in (self.mean, self.std))
            images = images.sub(mean).div(std)
        return images


def translate(transform: Any) -> CardTransform:
    """Return a transform of torchvision (version 1 or 2) for the card's decoder.

    Raises:
        CardDecodeError: It would be another transform there; the message has the difference.
    """
    found = _Translator()
    for each in _flatten(transform):
        found.take(each)
    return found.result()


def _flatten(transform: Any) -> list[Any]:
    if type(transform).__name__ == "Compose":
        return [part for each in transform.transforms for part in _flatten(each)]
    return [transform]


class _Translator:
    """Transforms so far."""

    def __init__(self) -> None:
        self._resize: Any = None
        self._size: Size | None = None
        self._window: Callable[[Size, torch.Generator], Window] | None = None
        self._interpolation = _FILTERS[0]
        self._flips: list[tuple[bool, float]] = []
        self._is_float = False
        self._normalization: tuple[Any, Any] | None = None

    def take(self, each: Any) -> None:
        name = type(each).__name__
        if not type(each).__module__.startswith("torchvision.transforms"):
            raise CardDecodeError(f"{name} is not a transform of torchvision")
        if name in {"ToImage", "PILToTensor"}:
            return
        if name in _TO_FLOAT:
            self._take_float(each, name)
        elif name in {"RandomHorizontalFlip", "RandomVerticalFlip"}:
            self._flips.append((name == "RandomVerticalFlip", float(each.p)))
        elif name == "Normalize":
            self._take_normalize(each)
        elif name in {"Resize", "CenterCrop", "RandomResizedCrop"}:
            if self._is_float or self._flips or self._window is not None:
                raise CardDecodeError(f"the card resizes and crops once and first, and {name} comes later")
            getattr(self, f"_take_{name.lower()}")(each)
        elif name == "ColorJitter":
            raise CardDecodeError("the card's ColorJitter has a fixed order of its parts, torchvision's a random one")
        else:
            raise CardDecodeError(f"the card has no {name}")

    def result(self) -> CardTransform:
        if self._resize is not None:
            height, width = _pair(self._resize.size) or (None, None)
            if height is None or width is None:
                raise CardDecodeError(
                    "images must have one size, and Resize with one number leaves the other side open"
                )
            self._size, self._window = (width, height), lambda *_: (0.0, 0.0, 1.0, 1.0)
        if self._size is None or self._window is None:
            raise CardDecodeError("images must have one size: a RandomResizedCrop, a Resize or a CenterCrop is needed")
        if self._size[0] % 2 or self._size[1] % 2:
            raise CardDecodeError(f"the card's decoder needs even sizes, got {self._size[0]} x {self._size[1]}")
        mean, std = self._normalization or (None, None)
        return CardTransform(
            self._size, self._interpolation, self._window, tuple(self._flips), self._is_float, mean, std
        )

    def _take_float(self, each: Any, name: str) -> None:
        dtype = getattr(each, "dtype", torch.float32)
        if dtype is not torch.float32 or not getattr(each, "scale", True):
            raise CardDecodeError(f"{name} must scale to float32, got {dtype}, scale={getattr(each, 'scale', True)}")
        self._is_float = True

    def _take_normalize(self, each: Any) -> None:
        mean, std = (tuple(float(value) for value in values) for values in (each.mean, each.std))
        if not self._is_float or self._normalization is not None or len(mean) != _CHANNELS or len(std) != _CHANNELS:
            raise CardDecodeError("Normalize must come once, after the conversion to float32, with three values")
        self._normalization = mean, std

    def _take_filter(self, each: Any) -> None:
        name = str(getattr(each.interpolation, "value", each.interpolation))
        if name not in _FILTERS:
            raise CardDecodeError(f"the card's decoder has no filter {name!r}, and would take bilinear")
        if getattr(each, "antialias", True) is False:
            raise CardDecodeError("the card's resize is taken to be antialiased, got `antialias=False`")
        self._interpolation = name

    def _take_resize(self, each: Any) -> None:
        self._take_filter(each)
        if getattr(each, "max_size", None) is not None or self._resize is not None:
            raise CardDecodeError("Resize must come once, without `max_size`")
        self._resize = each

    def _take_centercrop(self, each: Any) -> None:
        resize, self._resize = self._resize, None
        if resize is None:
            raise CardDecodeError("CenterCrop without Resize pads images that are smaller, and the card does not")
        pair, crop = _pair(resize.size), _pair(each.size)
        short = resize.size if isinstance(resize.size, int) else min(resize.size)
        if crop is None or max(crop) > (min(pair) if pair else short):
            raise CardDecodeError("CenterCrop must not be larger than Resize: the card does not pad")
        self._size = crop[1], crop[0]

        def window(size: Size, generator: torch.Generator) -> Window:
            del generator
            height, width = pair or _scaled(size, short)
            top, left = round((height - crop[0]) / 2.0), round((width - crop[1]) / 2.0)
            return left / width, top / height, crop[1] / width, crop[0] / height

        self._window = window

    def _take_randomresizedcrop(self, each: Any) -> None:
        self._take_filter(each)
        size = _pair(each.size)
        if size is None or self._resize is not None:
            raise CardDecodeError("RandomResizedCrop must have a height and a width, and no Resize before it")
        self._size = size[1], size[0]
        scale, ratio = tuple(each.scale), tuple(each.ratio)
        self._window = lambda size, generator: _random_window(size, scale, ratio, generator)


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
        drawn = torch.empty(1).uniform_(float(logs[0]), float(logs[1]), generator=generator)
        aspect = torch.exp(drawn).item()
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
