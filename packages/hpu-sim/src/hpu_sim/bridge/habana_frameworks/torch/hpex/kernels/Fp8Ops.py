"""The float8 operators of ``torch.ops.hpu`` as functions."""

# ruff: noqa: N999 - the bridge's name

import torch

__all__ = ["cast_from_fp8", "cast_to_fp8_v2", "fp8_gemm_v2"]

if not hasattr(torch.ops.hpu, "cast_from_fp8"):
    raise ImportError(f"the float8 operators need torch 2.1 or newer, which has float8, got {torch.__version__}")

cast_from_fp8 = torch.ops.hpu.cast_from_fp8
cast_to_fp8_v2 = torch.ops.hpu.cast_to_fp8_v2
fp8_gemm_v2 = torch.ops.hpu.fp8_gemm_v2
