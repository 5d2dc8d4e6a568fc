"""Optimizers that a card runs in one piece. The numbers are those of the same maths in torch."""

from habana_frameworks.torch.hpex.optimizers.adagrad import FusedAdagrad
from habana_frameworks.torch.hpex.optimizers.adamw import FusedAdamW
from habana_frameworks.torch.hpex.optimizers.lamb import FusedLamb
from habana_frameworks.torch.hpex.optimizers.lars import FusedLars
from habana_frameworks.torch.hpex.optimizers.momentum import FusedResourceApplyMomentum
from habana_frameworks.torch.hpex.optimizers.sgd import FusedSGD
from hpu_sim.features import features

__all__ = ["FusedAdagrad", "FusedAdamW", "FusedLamb", "FusedLars", "FusedResourceApplyMomentum", "FusedSGD"]

if not features().after_1_19:
    from habana_frameworks.torch.hpex.optimizers.marking import Adam, AdamW

    __all__ += ["Adam", "AdamW"]
