"""accelerate chooses the card and trains on it as plain torch does on the CPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, is_hpu_available
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.hpu(devices=2, lazy=True)

_EXAMPLES: Final = 64


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """One as a program makes it, with its process-wide state taken away afterwards."""
    accelerator = Accelerator()
    yield accelerator
    accelerator.free_memory()
    accelerator.state._reset_state(reset_partial_state=True)


def test_the_card_is_chosen(accelerator: Accelerator) -> None:
    """By its bridge, with nothing said to accelerate."""
    assert is_hpu_available()
    assert accelerator.device.type == "hpu"
    assert accelerator.distributed_type == DistributedType.NO


def _data() -> DataLoader[tuple[Tensor, ...]]:
    inputs = torch.randn(_EXAMPLES, 16, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=8)


def test_training_equals_plain_torch(accelerator: Accelerator) -> None:
    """The same losses, step by step."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    model = copy.deepcopy(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, data = accelerator.prepare(model, optimizer, _data())
    losses = []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())

    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    plain_losses = []
    for inputs, targets in _data():
        plain_optimizer.zero_grad()
        plain_loss = nn.functional.mse_loss(plain(inputs), targets)
        plain_loss.backward()
        plain_optimizer.step()
        plain_losses.append(plain_loss.item())

    torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain_losses))
    assert {parameter.device.type for parameter in model.parameters()} == {"hpu"}


def test_mixed_precision_computes_in_bfloat16(accelerator: Accelerator) -> None:
    """Its autocast is the card's."""
    accelerator.state._reset_state(reset_partial_state=True)
    mixed = Accelerator(mixed_precision="bf16")

    with mixed.autocast():
        product = torch.ones(2, 2, device=mixed.device) @ torch.ones(2, 2, device=mixed.device)

    assert product.dtype == torch.bfloat16
