"""A stand-in for the Gaudi bridge that counts calls, with the real one's effects on the environment."""

from habana_frameworks.torch import core, hpu
from habana_frameworks.torch.distributed import hccl

__all__ = ["core", "hccl", "hpu"]
