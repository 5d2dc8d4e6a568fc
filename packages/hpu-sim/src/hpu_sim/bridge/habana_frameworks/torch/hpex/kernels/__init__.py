"""Fused kernels, each computed by the plain torch formula, with its gradient."""

from habana_frameworks.torch.hpex.kernels.attention import FusedSDPA, PySDPA
from habana_frameworks.torch.hpex.kernels.losses import CTCLoss, CustomSoftmax
from habana_frameworks.torch.hpex.kernels.rotary import (
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)

__all__ = [
    "CTCLoss",
    "CustomSoftmax",
    "FusedSDPA",
    "PySDPA",
    "RotaryPosEmbeddingHelperV1",
    "RotaryPosEmbeddingHelperV2",
    "RotaryPosEmbeddingHelperV3",
    "RotaryPosEmbeddingMode",
    "apply_rotary_pos_emb",
]
