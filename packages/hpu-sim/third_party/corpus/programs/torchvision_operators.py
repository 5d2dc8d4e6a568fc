"""Declarations of the operators that torchvision refers to on import.

The wheels of the package index are built for CUDA. Beside torch's CPU build, their operators cannot be loaded.
"""

import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
