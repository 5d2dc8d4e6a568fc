"""Pipe for an image folder with transforms of torchvision, as the vendor's translates them.

It differs from torchvision: `Resize(int)` makes a square, the crop happens in the decoder, `Normalize` comes last, and
without `ToTensor` the result is uint8, scaled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from habana_frameworks.mediapipe import fn
from habana_frameworks.mediapipe.media_types import dtype, ftype, imgtype, randomCropType
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators.cpu_nodes.cpu_nodes import media_function

__all__ = ["IMAGE_SIZE", "ImageNetPipe"]

IMAGE_SIZE: Final = 224

_FORMATS: Final = ["jpg", "JPG", "jpeg", "JPEG"]
_HALF: Final = 0.5
_CHANNELS: Final = 3
_FILTERS: Final = {
    "bilinear": ftype.BI_LINEAR,
    "lanczos": ftype.LANCZOS,
    "nearest": ftype.NEAREST,
    "bicubic": ftype.BICUBIC,
    "box": ftype.BOX,
    "hamming": ftype.BI_LINEAR,
}
_COLORS: Final = {
    "brightness": fn.Brightness,
    "contrast": fn.Contrast,
    "saturation": fn.Saturation,
    "hue": fn.Hue,
}


class _Uniform(media_function):  # type: ignore[misc] # the bridge's modules have no types
    """Random factors of a batch."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        (self._batch_size,) = params["shape"]
        self._rng = np.random.default_rng()

    def __call__(self, *args: Any) -> Any:
        """Return the factors."""
        del args
        low, high = self.params["priv_params"]
        return self._rng.uniform(low, high, self._batch_size).astype(np.float32)


class ImageNetPipe(MediaPipe):  # type: ignore[misc] # as above
    """Legacy pipe of an image folder.

    Args:
        transform: The transforms of torchvision.
        batch_size: Images per batch.
        prefetch_depth: Batches that are prepared ahead.
        **reader: Parameters of the reader.

    Raises:
        ValueError: The transforms are not among those that it knows.
    """

    def __init__(self, transform: Any, batch_size: int, prefetch_depth: int, **reader: Any) -> None:
        super().__init__(device="legacy", prefetch_depth=prefetch_depth, batch_size=batch_size)
        self._reader = {"format": _FORMATS, **reader}
        self._decoder: dict[str, Any] = {}
        self._crop: list[int] | None = None
        self._flips: list[str] = []
        self._jitter: dict[str, tuple[float, float]] = {}
        self._normalization: tuple[Any, Any] | None = None
        self._is_float = False
        seen: set[str] = set()
        for each in getattr(transform, "transforms", [transform]):
            name = type(each).__name__
            kind = "crop" if name in {"RandomResizedCrop", "CenterCrop"} else name
            if kind in seen and name not in {"RandomHorizontalFlip", "RandomVerticalFlip"}:
                raise ValueError(f"{name} after another of its kind is not supported")
            seen.add(kind)
            translate = getattr(self, f"_take_{name}", None)
            if translate is None:
                raise ValueError(f"the transform {name} is not supported")
            translate(each)
        if self._is_float and self._normalization is None:
            raise ValueError("ToTensor without Normalize is not supported")
        if not seen & {"crop", "Resize"}:
            raise ValueError("a resize or crop is needed")

    def definegraph(self) -> Any:
        """Return images and labels."""
        jpegs, labels = fn.ReadImageDatasetFromDir(**self._reader)()
        size = self._crop or self._decoder["resize"]
        images = fn.ImageDecoder(device="hpu", output_format=imgtype.RGB_P, **self._decoder)(jpegs)
        if self._crop:
            position = {"crop_pos_x": _HALF, "crop_pos_y": _HALF}
            images = fn.Crop(device="hpu", crop_w=size[0], crop_h=size[1], dtype=dtype.UINT8, **position)(images)
        for name, limits in self._jitter.items():
            factors = fn.MediaFunc(
                func=_Uniform, shape=[self._batch_size], dtype=dtype.FLOAT32, priv_params=list(limits)
            )()
            images = _COLORS[name](dtype=dtype.UINT8)(images, factors)
        for name in self._flips:
            predicate = fn.CoinFlip(probability=_HALF, dtype=dtype.INT8)()
            images = fn.RandomFlip(**{name: 1}, dtype=dtype.UINT8)(images, predicate)
        mean, std = self._normalization or ((0, 0, 0), (1, 1, 1))

        def scaled(values: Any) -> Any:
            return np.array(values, dtype=np.float32) * np.float32(255)

        constants = [
            fn.MediaConst(data=values, shape=[1, 1, 3], dtype=dtype.FLOAT32, batch_broadcast=True)()
            for values in (scaled(mean), 1 / scaled(std))
        ]
        output: dict[str, Any] = {"dtype": dtype.FLOAT32}
        if not self._is_float:
            output = {"dtype": dtype.UINT8, "output_scale": 0.03125, "output_zerop": 128}
        images = fn.CropMirrorNorm(crop_w=size[0], crop_h=size[1], **output)(images, *constants)
        return images, labels

    def _resize(self, size: Any, interpolation: Any) -> None:
        # A number makes a square, where torchvision scales the short side.
        height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
        if height % 2 or width % 2:
            raise ValueError(f"sizes must be even, got {size}")
        name = str(getattr(interpolation, "value", interpolation))
        if name not in _FILTERS:
            raise ValueError(f"the interpolation {interpolation} is not supported")
        self._decoder |= {"resize": [width, height], "resampling_mode": _FILTERS[name]}

    def _take_RandomResizedCrop(self, each: Any) -> None:  # noqa: N802 - torchvision's name
        self._resize(each.size, each.interpolation)
        names = ("scale_min", "scale_max", "ratio_min", "ratio_max")
        self._decoder |= dict(zip(names, (*each.scale, *each.ratio), strict=True))
        self._decoder["random_crop_type"] = randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP

    def _take_CenterCrop(self, each: Any) -> None:  # noqa: N802 - as above
        height, width = each.size
        if height % 2 or width % 2:
            raise ValueError(f"sizes must be even, got {each.size}")
        self._crop = [width, height]

    def _take_Resize(self, each: Any) -> None:  # noqa: N802 - as above
        self._resize(each.size, each.interpolation)

    def _take_RandomHorizontalFlip(self, each: Any) -> None:  # noqa: N802 - as above
        if each.p != _HALF:
            raise ValueError(f"a flip must have the probability 0.5, got {each.p}")
        self._flips.append("vertical" if type(each).__name__ == "RandomVerticalFlip" else "horizontal")

    _take_RandomVerticalFlip = _take_RandomHorizontalFlip  # noqa: N815 - as above

    def _take_ToTensor(self, each: Any) -> None:  # noqa: N802 - as above
        del each
        self._is_float = True

    def _take_Normalize(self, each: Any) -> None:  # noqa: N802 - as above
        if len(each.mean) != _CHANNELS:
            raise ValueError(f"Normalize must have three values, got {len(each.mean)}")
        self._normalization = each.mean, each.std

    def _take_ColorJitter(self, each: Any) -> None:  # noqa: N802 - as above
        for name in _COLORS:
            limits = getattr(each, name)
            if limits is not None:
                scale = 360 if name == "hue" else 1
                self._jitter[name] = limits[0] * scale, limits[1] * scale
