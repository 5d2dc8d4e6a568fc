"""Matrix products with known shares of the peak: those of the vendor's engine library, and measured ones."""

from __future__ import annotations

from typing import Final

from hpu_sim.prediction.recording import Product

#: Name, product, and the share of the peak in bfloat16 on GAUDI, GAUDI2 and GAUDI3 by a port of the published library,
#: which takes K as it is.
SHEET: Final = (
    ("4096 cubed", Product(1, 4096, 4096, 4096), 1.0, 1.0, 1.0),
    ("LoRA down 4096 x 8 x 4096", Product(1, 4096, 8, 4096, "abt"), 0.125, 0.061, 0.031),
    ("LoRA up 4096 x 4096 x 8", Product(1, 4096, 4096, 8, "abt"), 0.062, 0.031, 0.016),
    ("QK 4096 x 4096 x 128, 32 times", Product(32, 4096, 4096, 128, "abt"), 1.0, 0.5, 0.25),
    ("AV 4096 x 128 x 4096, 32 times", Product(32, 4096, 128, 4096), 1.0, 0.8, 0.5),
    ("RoBERTa QK 384 x 384 x 64, 192 times", Product(192, 384, 384, 64, "abt"), 0.5, 0.188, 0.07),
    ("ViT QK 197 x 197 x 64, 1536 times", Product(1536, 197, 197, 64, "abt"), 0.296, 0.148, 0.037),
    ("ViT AV 197 x 64 x 197, 1536 times", Product(1536, 197, 64, 197), 0.77, 0.216, 0.037),
    ("ViT AV, its first operand transposed", Product(1536, 197, 64, 197, "atb"), 0.77, 0.192, 0.074),
    ("ViT fc1 25216 x 3072 x 768", Product(1, 25216, 3072, 768, "abt"), 1.0, 0.995, 0.985),
    ("Swin QK 49 x 49 x 32, 16384 times", Product(16384, 49, 49, 32, "abt"), 0.073, 0.018, 0.005),
    ("Swin AV 49 x 32 x 49, 16384 times", Product(16384, 49, 32, 49), 0.073, 0.018, 0.005),
    ("Swin fc1 200704 x 384 x 96", Product(1, 200704, 384, 96, "abt"), 0.75, 0.375, 0.141),
    ("decoding 16 x 4096 x 4096", Product(1, 16, 4096, 4096, "abt"), 0.25, 0.12, 0.062),
    ("short K 2048 x 2048 x 256", Product(1, 2048, 2048, 256), 1.0, 1.0, 0.5),
)
_SHAPES: Final = (
    (16384, 8192, 1280, 395.4, 648.6),
    (16384, 1024, 8192, 417.9, 787.9),
    (16384, 8192, 7168, 425.2, 799.7),
    (16384, 3584, 8192, 422.9, 801.4),
    (4096, 4096, 4096, 408.2, 751.7),
    (8192, 8192, 8192, 423.9, 811.0),
    (16384, 16384, 16384, 379.8, 842.7),
    (32768, 32768, 32768, 363.8, 739.7),
)
#: Product, dtype, and TFLOP/s on GAUDI2 as a public set of measurements has them: M, K, N, bfloat16 and float8 above.
MEASURED: Final = tuple(
    (Product(1, rows, columns, inner), dtype, rate)
    for rows, inner, columns, *rates in _SHAPES
    for dtype, rate in zip(("bfloat16", "float8"), rates, strict=True)
)
