"""Operators of the card on decoded images, by the formulas of the vendor's documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from habana_frameworks.mediapipe.backend.nodes import Operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from habana_frameworks.mediapipe.backend.nodes import Kind, Pipe

__all__ = ["OPERATORS"]

_HPU: Final[dict[str, Kind]] = {"hpu": "hpu"}
_BOTH: Final[dict[str, Kind]] = {"cpu": "cpu", "hpu": "hpu"}
# Weights of gray, and the scale of uint8. Source: ITU-R BT.601, as in torchvision and Pillow.
_GRAY: Final = (0.299, 0.587, 0.114)
_MAX: Final = 255.0


def _cast(array: Any, parameters: dict[str, Any], default: str) -> Any:
    """Return an array in the operator's type; integers are scaled and shifted, rounded and clipped."""
    name = parameters["dtype"] or default
    if name in {"bfloat16", "float32"}:
        return array.astype(np.float32)
    limits = np.iinfo(name)
    scaled = np.rint(array / parameters["output_scale"] + parameters["output_zerop"])
    return np.clip(scaled, limits.min, limits.max).astype(name)


def _is_planar(image: Any) -> bool:
    return bool(image.shape[-1] != 3)  # noqa: PLR2004 - channels, innermost in NHWC


def _crop(image: Any, parameters: dict[str, Any]) -> Any:
    axes = (3, 2) if _is_planar(image) else (2, 1)
    for axis, size, position in zip(axes, ("crop_w", "crop_h"), ("crop_pos_x", "crop_pos_y"), strict=True):
        start = int(parameters[position] * (image.shape[axis] - parameters[size]))
        if start < 0:
            raise ValueError(f"`{size}` must be at most the image's {image.shape[axis]}, got {parameters[size]}")
        image = np.take(image, range(start, start + parameters[size]), axis)
    return image


def _make_crop_mirror_norm(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe

    def normalize(input: Any, mean: Any, inv_std: Any) -> Any:  # noqa: A002 - the vendor's name
        image = _crop(input, parameters)
        if parameters["mirror"]:
            image = np.flip(image, 3 if _is_planar(input) else 2)
        return _cast((image.astype(np.float32) - mean) * inv_std, parameters, "float32")

    return normalize


def _make_crop(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe
    return lambda input: _crop(input, parameters)  # noqa: A006 - the vendor's name


def _make_flip(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe

    def flip(input: Any, predicate: Any) -> Any:  # noqa: A002 - the vendor's name
        chosen = np.reshape(predicate, (-1, *[1] * (input.ndim - 1))) != 0
        axes = (2, 3) if _is_planar(input) else (1, 2)
        for axis, name in zip(axes, ("vertical", "horizontal"), strict=True):
            if parameters[name]:
                input = np.where(chosen, np.flip(input, axis), input)  # noqa: A001 - as above
        # Floats are cut to the operator's own type, unless `dtype` says otherwise.
        return _cast(input, parameters, "uint8")

    return flip


def _blend(image: Any, other: Any, factor: Any) -> Any:
    return image * factor + other * (1 - factor)


def _gray(image: Any) -> Any:
    axis = 1 if _is_planar(image) else 3
    weights = np.reshape(np.array(_GRAY, dtype=np.float32), [3 if each == axis else 1 for each in range(4)])
    return (image * weights).sum(axis, keepdims=True)


def _brightness(image: Any, factor: Any) -> Any:
    return image * factor


def _contrast(image: Any, factor: Any) -> Any:
    return _blend(image, np.rint(_gray(image).mean((1, 2, 3), keepdims=True)), factor)


def _saturation(image: Any, factor: Any) -> Any:
    return _blend(image, _gray(image), factor)


def _hue(image: Any, degrees: Any) -> Any:
    # A rotation about the gray axis, in YIQ.
    to_yiq = np.array([_GRAY, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    axis = 1 if _is_planar(image) else 3
    yiq = np.moveaxis(image, axis, -1) @ to_yiq.T
    angle = np.radians(np.reshape(degrees, (-1, 1, 1)))
    first, second = yiq[..., 1].copy(), yiq[..., 2].copy()
    yiq[..., 1] = first * np.cos(angle) - second * np.sin(angle)
    yiq[..., 2] = first * np.sin(angle) + second * np.cos(angle)
    return np.moveaxis(yiq @ np.linalg.inv(to_yiq).T, -1, axis)


def _make_color(formula: Callable[[Any, Any], Any], default: float) -> Any:
    def make(parameters: dict[str, Any], pipe: Pipe) -> Any:
        del pipe

        def change(input: Any, scale: Any = None) -> Any:  # noqa: A002 - the vendor's name
            factor = np.reshape(default if scale is None else scale, (-1, 1, 1, 1)).astype(np.float32)
            changed = np.clip(formula(input.astype(np.float32), factor), 0, _MAX)
            return _cast(changed, parameters, "uint8")

        return change

    return make


_POSITION: Final = dict.fromkeys(("crop_d", "crop_pos_x", "crop_pos_y", "crop_pos_z", "pad_val"), 0)

OPERATORS: Final = (
    Operator(
        "CropMirrorNorm",
        _HPU,
        _make_crop_mirror_norm,
        ("input", "mean", "inv_std"),
        3,
        {"mirror": 0, "crop_w": 100, "crop_h": 100, **_POSITION},
    ),
    Operator("Crop", _BOTH, _make_crop, ("input",), 1, {"crop_w": 0, "crop_h": 0, **_POSITION}),
    Operator(
        "RandomFlip",
        _BOTH,
        _make_flip,
        ("input", "predicate"),
        2,
        dict.fromkeys(("horizontal", "vertical", "depthwise"), 0),
    ),
    Operator("Brightness", _HPU, _make_color(_brightness, 1.0), ("input", "scale"), 1),
    Operator("Contrast", _HPU, _make_color(_contrast, 1.0), ("input", "scale"), 1),
    Operator("Saturation", _HPU, _make_color(_saturation, 1.0), ("input", "scale"), 1),
    Operator("Hue", _HPU, _make_color(_hue, 0.0), ("input", "scale"), 1),
)
