"""Constants of media pipes. Shapes are given innermost first: ``[W, H, C, N]`` is NCHW in torch."""

from __future__ import annotations

# ruff: noqa: N801 - the vendor's names
from typing import Final

__all__ = ["dtype", "ftype", "imgtype", "lastBatchStrategy", "layout", "randomCropType", "readerOutType"]


class dtype:
    """Types of elements."""

    NDT: Final = ""
    INT8: Final = "int8"
    UINT8: Final = "uint8"
    INT16: Final = "int16"
    UINT16: Final = "uint16"
    INT32: Final = "int32"
    UINT32: Final = "uint32"
    INT64: Final = "int64"
    UINT64: Final = "uint64"
    BFLOAT16: Final = "bfloat16"
    FLOAT16: Final = "float16"
    FLOAT32: Final = "float32"
    FLOAT64: Final = "float64"


class imgtype:
    """Order of a decoded image: interleaved (NHWC) or planar (NCHW)."""

    RGB_I: Final = "rgb-i"
    RGB_P: Final = "rgb-p"


class layout:
    """Layouts of tensors, innermost dimension first."""

    NA: Final = ""
    NHWC: Final = "CWHN"
    NCHW: Final = "WHCN"


class ftype:
    """Filters of a resize."""

    LINEAR: Final = 0
    LANCZOS: Final = 1
    NEAREST: Final = 2
    BI_LINEAR: Final = 3
    BICUBIC: Final = 4
    SPLINE: Final = 5
    BOX: Final = 6


class randomCropType:
    """Crops of the decoder."""

    NO_RANDOM_CROP: Final = 0
    RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP: Final = 1
    RANDOMIZED_ASPECT_RATIO_CROP: Final = 2
    CENTER_CROP: Final = 3


class lastBatchStrategy:
    """What a reader of C++ does with an incomplete last batch."""

    NONE: Final = 0
    DROP: Final = 1
    PARTIAL: Final = 2
    PAD: Final = 3
    CYCLIC: Final = 4
    FILL: Final = 5


class readerOutType:
    """What a reader of the program's own hands to the decoder."""

    FILE_LIST: Final = 0
