"""Moving average of weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
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
    assert (average.updates, average.ema.training, average.ema.weight.requires_grad) == (1, False, True)
    with pytest.raises(ValueError, match="`decay` must be at least 0, got -1"):
        FusedEMA(model, decay=-1)


def test_the_module_inside_of_a_wrapper_is_averaged() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    # Without devices, it calls the module.
    wrapped = torch.nn.DataParallel(model)
    average = FusedEMA(wrapped, decay=0.0)
    torch.nn.init.constant_(model.weight, 3.0)
    average.update(wrapped)

    assert list(average.ema.state_dict()) == ["weight"]
    assert average.ema.weight.item() == 3.0


def test_public_attributes_are_copied() -> None:
    model: Any = torch.nn.Linear(1, 1)
    average = FusedEMA(model)
    model.names, model.stride, model.reducer, model._hidden = ["a"], 8, "no", 1
    average.update_attr(model)

    assert (average.ema.names, average.ema.stride) == (["a"], 8)
    assert not hasattr(average.ema, "reducer")
    assert not hasattr(average.ema, "_hidden")
