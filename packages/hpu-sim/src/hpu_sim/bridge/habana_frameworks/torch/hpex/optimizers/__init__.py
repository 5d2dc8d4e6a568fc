"""Fused optimizers: each step is one graph on a card."""

from habana_frameworks.torch.hpex.optimizers.adagrad import FusedAdagrad
from habana_frameworks.torch.hpex.optimizers.adamw import FusedAdamW
from habana_frameworks.torch.hpex.optimizers.lamb import FusedLamb
from habana_frameworks.torch.hpex.optimizers.lars import FusedLars
from habana_frameworks.torch.hpex.optimizers.sgd import FusedSGD
from hpu_sim.device.features import features

__all__ = ["FusedAdagrad", "FusedAdamW", "FusedLamb", "FusedLars", "FusedSGD"]

if not features().after_1_19:
    from habana_frameworks.torch.hpex.optimizers.mark_step_optimizers import Adam, AdamW

    __all__ += ["Adam", "AdamW"]
