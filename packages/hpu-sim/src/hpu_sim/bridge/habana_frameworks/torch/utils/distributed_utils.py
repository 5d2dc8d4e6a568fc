"""Deprecated module of :func:`initialize_distributed_hpu`."""

from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu

__all__ = ["initialize_distributed_hpu"]
