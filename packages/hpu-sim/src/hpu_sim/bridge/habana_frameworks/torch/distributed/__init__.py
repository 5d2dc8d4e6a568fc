"""Distributed training."""

from habana_frameworks.torch.distributed import hccl

__all__ = ["hccl"]
