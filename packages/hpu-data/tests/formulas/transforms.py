"""Transforms of images of Pillow."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image


class InterpolationMode(Enum):
    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def _resize(image: Any, height: int, width: int, interpolation: InterpolationMode) -> Any:
    return image.resize((width, height), getattr(Image.Resampling, interpolation.name))


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for each in self.transforms:
            image = each(image)
        return image


class ToTensor:
    def __call__(self, image: Any) -> torch.Tensor:
        return PILToTensor()(image).to(torch.float32).div(255)


class PILToTensor:
    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


class Normalize:
    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = mean, std

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - torch.tensor(self.mean).view(-1, 1, 1)) / torch.tensor(self.std).view(-1, 1, 1)


class Resize:
    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: Any = None) -> None:
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation, max_size, True

    def __call__(self, image: Any) -> Any:
        if isinstance(self.size, int):
            short, long = sorted(image.size)
            other = int(self.size * long / short)
            height, width = (other, self.size) if image.width <= image.height else (self.size, other)
            return _resize(image, height, width, self.interpolation)
        height, width = self.size
        return _resize(image, height, width, self.interpolation)


class CenterCrop:
    def __init__(self, size: Any) -> None:
        self.size = _pair(size)

    def __call__(self, image: Any) -> Any:
        height, width = self.size
        top, left = round((image.height - height) / 2.0), round((image.width - width) / 2.0)
        return image.crop((left, top, left + width, top + height))


class RandomResizedCrop:
    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR,
    ) -> None:
        self.size, self.scale, self.ratio, self.interpolation, self.antialias = (
            _pair(size),
            scale,
            ratio,
            interpolation,
            True,
        )

    @staticmethod
    def get_params(image: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        width, height = image.size
        logs = torch.log(torch.tensor(ratio))
        for _ in range(10):
            area = height * width * torch.empty(1).uniform_(scale[0], scale[1]).item()
            aspect = torch.exp(torch.empty(1).uniform_(float(logs[0]), float(logs[1]))).item()
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = int(torch.randint(0, height - h + 1, size=(1,)).item())
                return top, int(torch.randint(0, width - w + 1, size=(1,)).item()), h, w
        w, h = width, height
        if width / height < min(ratio):
            h = round(w / min(ratio))
        elif width / height > max(ratio):
            w = round(h * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def __call__(self, image: Any) -> Any:
        top, left, height, width = self.get_params(image, self.scale, self.ratio)
        return _resize(image.crop((left, top, left + width, top + height)), *self.size, self.interpolation)


class _Flip:
    method = Image.Transpose.FLIP_LEFT_RIGHT

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return image.transpose(self.method) if torch.rand(1) < self.p else image


class RandomHorizontalFlip(_Flip):
    pass


class RandomVerticalFlip(_Flip):
    method = Image.Transpose.FLIP_TOP_BOTTOM


class ColorJitter:
    def __init__(self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue

    def __call__(self, image: Any) -> Any:
        raise NotImplementedError


class Grayscale:
    pass
