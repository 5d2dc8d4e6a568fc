"""Fake of the Gaudi bridge that counts calls, with the real one's effects on the environment."""

import os

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

from habana_frameworks.torch import core, hpu
from habana_frameworks.torch.distributed import hccl

__all__ = ["core", "hccl", "hpu"]
