"""Decoder of JPEG files, by Pillow on the host in place of the card's media engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from habana_frameworks.mediapipe.backend.nodes import Operator
from habana_frameworks.mediapipe.media_types import ftype, imgtype, randomCropType
from hpu_sim.device.runtime import active_config

if TYPE_CHECKING:
    from types import ModuleType

    from habana_frameworks.mediapipe.backend.nodes import Pipe

__all__ = ["OPERATORS", "RANGES", "random_window", "size_of"]

#: Parameters of a random crop.
RANGES: Final = ("scale_min", "scale_max", "ratio_min", "ratio_max")

_ATTEMPTS: Final = 10
_FILTERS: Final = {
    ftype.LINEAR: "BILINEAR",
    ftype.LANCZOS: "LANCZOS",
    ftype.NEAREST: "NEAREST",
    ftype.BI_LINEAR: "BILINEAR",
    ftype.BICUBIC: "BICUBIC",
    ftype.BOX: "BOX",
}


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ModuleNotFoundError(
            'hpu-sim decodes images with Pillow, which is not installed: pip install "hpu-sim[media]"', name="PIL"
        ) from error
    return Image


def _open(file: str) -> Any:
    image = _pillow().open(file)
    if image.format != "JPEG":
        image.close()
        raise RuntimeError(f"the card decodes JPEG files only, got {image.format} in {file} (simulated)")
    return image


def size_of(file: str) -> tuple[int, int]:
    """Return width and height of an image, from its header."""
    with _open(file) as image:
        return int(image.width), int(image.height)


def random_window(
    rng: np.random.Generator, size: tuple[int, int], kind: int, parameters: dict[str, Any]
) -> tuple[float, float, float, float]:
    """Return a crop's x, y, width and height as fractions of an image.

    Args:
        rng: Random numbers.
        size: Width and height of the image.
        kind: A `randomCropType`.
        parameters: Those of the operator: ranges of the crop's area and ratio, sizes of the resize.
    """
    width, height = size
    if kind == randomCropType.NO_RANDOM_CROP:
        return 0.0, 0.0, 1.0, 1.0
    if kind == randomCropType.CENTER_CROP:
        side = min(size)
        return (width - side) / 2 / width, (height - side) / 2 / height, side / width, side / height
    low, high = math.log(parameters["ratio_min"]), math.log(parameters["ratio_max"])
    for _ in range(_ATTEMPTS):
        area = width * height
        if kind == randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP:
            area *= rng.uniform(parameters["scale_min"], parameters["scale_max"])
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = rng.integers(0, width - w + 1), rng.integers(0, height - h + 1)
            return x / width, y / height, w / width, h / height
    return random_window(rng, size, randomCropType.CENTER_CROP, parameters)


def _make(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe
    if active_config().generation == "GAUDI":
        raise RuntimeError("ImageDecoder needs Gaudi 2 or newer: Gaudi has no media engine (simulated)")
    if parameters["resampling_mode"] not in _FILTERS:
        raise ValueError(f"`resampling_mode` must be one of {sorted(_FILTERS)}, got {parameters['resampling_mode']}")
    rng = np.random.default_rng(parameters["seed"])
    resample = getattr(_pillow().Resampling, _FILTERS[parameters["resampling_mode"]])

    def decode(jpegs: Any, crop_window: Any = None) -> Any:
        images = []
        for index, file in enumerate(jpegs):
            with _open(file) as image:
                if crop_window is None:
                    window = random_window(rng, image.size, parameters["random_crop_type"], parameters)
                else:
                    window = crop_window[index]
                images.append(_decode(image, window, parameters, resample))
        batch = np.stack(images)
        return batch.transpose(0, 3, 1, 2) if parameters["output_format"] == imgtype.RGB_P else batch

    return decode


def _decode(image: Any, window: Any, parameters: dict[str, Any], resample: int) -> Any:
    """Return one image, ``[height, width, 3]`` of uint8."""
    x, y, w, h = (float(value) for value in window)
    # Fractions are of 32 bits: a border of whole pixels is one again after this.
    left, top, right, bottom = (
        round(fraction * side, 2)
        for fraction, side in zip((x, y, x + w, y + h), (image.width, image.height) * 2, strict=True)
    )
    pixels = math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)
    rgb = image.convert("RGB").crop(pixels)
    if parameters["resize"]:
        box = left - pixels[0], top - pixels[1], right - pixels[0], bottom - pixels[1]
        rgb = rgb.resize(tuple(parameters["resize"]), resample, box)
    if parameters["crop_after_resize"]:
        left, top, width, height = parameters["crop_after_resize"]
        rgb = rgb.crop((left, top, left + width, top + height))
    return np.asarray(rgb)


OPERATORS: Final = (
    Operator(
        "ImageDecoder",
        {"hpu": "decoder"},
        _make,
        ("jpegs", "crop_window"),
        1,
        {
            "output_format": imgtype.RGB_I,
            "resize": [],
            "crop_after_resize": [],
            "resampling_mode": ftype.BI_LINEAR,
            "random_crop_type": randomCropType.NO_RANDOM_CROP,
            **dict.fromkeys(RANGES, 0.0),
            "decoder_stage": None,
            "seed": 0,
        },
    ),
)
