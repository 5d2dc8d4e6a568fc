"""The float8 operators of ``torch.ops.hpu`` as functions."""

# ruff: noqa: N999 - the bridge's name

import torch

__all__ = ["cast_from_fp8", "cast_to_fp8_v2", "fp8_gemm_v2"]

cast_from_fp8 = torch.ops.hpu.cast_from_fp8
cast_to_fp8_v2 = torch.ops.hpu.cast_to_fp8_v2
fp8_gemm_v2 = torch.ops.hpu.fp8_gemm_v2
