"""Moving average of weights."""

from __future__ import annotations

import math

import torch
from habana_frameworks.torch.hpex.movingavrg import FusedEMA


def test_the_average_follows_the_weights_with_a_growing_decay() -> None:
    model = torch.nn.Linear(1, 1, bias=False, device="hpu")
    torch.nn.init.ones_(model.weight)
    average = FusedEMA(model, decay=0.5)
    torch.nn.init.constant_(model.weight, 3.0)

    average.update(model)

    decay = 0.5 * (1 - math.exp(-1 / 2000))
    torch.testing.assert_close(average.ema.weight.item(), 3 - 2 * decay)
    assert average.updates == 1


def test_the_average_is_a_model_for_evaluation() -> None:
    average = FusedEMA(torch.nn.Linear(1, 1, device="hpu")).ema

    assert not average.training
    assert not any(parameter.requires_grad for parameter in average.parameters())
