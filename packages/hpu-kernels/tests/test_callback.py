"""The callback in a training."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from hpu_kernels import HPUKernels, callback, replacement

from .modules import Classifier, losses_of, make_loader, make_trainer

PLAIN = functional.scaled_dot_product_attention
ATTENTION = HPUKernels(optimizer=False, norm=False, rotary=False, clip=False)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are logged."""
    tables: list[str] = []
    monkeypatch.setattr(callback, "rank_zero_info", tables.append)
    return tables


def test_training_is_the_same_with_one_table(logged: list[str]) -> None:
    plain, fused = (losses_of(Classifier(), *callbacks) for callbacks in ((), (ATTENTION,)))

    assert torch.allclose(plain, fused, atol=1e-5)
    assert logged == ["hpu-kernels (simulated):\n     3  scaled_dot_product_attention: FusedSDPA"]
    assert functional.scaled_dot_product_attention is PLAIN


def test_calls_in_the_steps_own_code_are_computed(logged: list[str]) -> None:
    """Not only those of its modules."""

    class Own(Classifier):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            inputs = batch[0]
            return super().training_step([functional.scaled_dot_product_attention(inputs, inputs, inputs), *batch[1:]])

    losses_of(Own(), ATTENTION)

    assert "4  scaled_dot_product_attention" in logged[0]


def test_an_error_undoes_it() -> None:
    class Failing(Classifier):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        losses_of(Failing(), HPUKernels())

    assert functional.scaled_dot_product_attention is PLAIN


@pytest.mark.parametrize("run", ["validate", "test", "predict"])
def test_evaluations_use_it(run: str) -> None:
    counts: list[int] = []

    class Counting(Classifier):
        def validation_step(self, batch: Any) -> None:
            self.training_step(batch)
            counts.extend(replacement.calls.values())

        test_step = validation_step

        def predict_step(self, batch: Any) -> int:
            self.validation_step(batch)
            return 0

    kernels = ATTENTION
    getattr(make_trainer(kernels), run)(Counting(), make_loader(1))

    assert counts[0] == 3
    assert not replacement.calls
    assert functional.scaled_dot_product_attention is PLAIN


def test_other_devices_stay(logged: list[str]) -> None:
    losses_of(Classifier(), HPUKernels(), accelerator="cpu")

    assert [each for each in logged if "FusedSDPA" in each] == []
