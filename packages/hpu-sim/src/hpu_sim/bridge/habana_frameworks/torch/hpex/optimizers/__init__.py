"""Fused optimizers: each step is one graph on a card."""

from habana_frameworks.torch.hpex.optimizers.adagrad import FusedAdagrad
from habana_frameworks.torch.hpex.optimizers.adamw import FusedAdamW
from habana_frameworks.torch.hpex.optimizers.lamb import FusedLamb
from habana_frameworks.torch.hpex.optimizers.sgd import FusedSGD

__all__ = ["FusedAdagrad", "FusedAdamW", "FusedLamb", "FusedSGD"]
