"""Training on the device and on the CPU is bitwise equal over 200 steps, with the one thread of conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    Batch = tuple[torch.Tensor, torch.Tensor]

_STEPS: Final = 200
_CLASSES: Final = 4


class _Transformer(nn.Module):
    """Classifier of token sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, _CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits, of shape (batch, classes), of tokens of shape (batch, sequence)."""
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(1))
        return logits


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, _CLASSES))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, _CLASSES),
    )


def _vectors(generator: torch.Generator) -> Batch:
    return torch.randn(8, 16, generator=generator), torch.randint(_CLASSES, (8,), generator=generator)


def _images(generator: torch.Generator) -> Batch:
    return torch.randn(8, 1, 12, 12, generator=generator), torch.randint(_CLASSES, (8,), generator=generator)


def _tokens(generator: torch.Generator) -> Batch:
    return torch.randint(11, (4, 8), generator=generator), torch.randint(_CLASSES, (4,), generator=generator)


_MODELS: Final[dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Batch]]]] = {
    "MLP with LayerNorm and GELU": (_mlp, _vectors),
    "CNN with BatchNorm": (_cnn, _images),
    "transformer": (_Transformer, _tokens),
}


def _train(name: str, device: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train from one seed, and return the loss of each step and the final state."""
    make, batch = _MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(_STEPS):
        x, y = batch(data)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {key: value.cpu() for key, value in model.state_dict().items()}


# In torch < 2.9 attention on the device uses another algorithm than on the CPU.
_NEEDS: Final = pytest.mark.needs_torch("2.9", "way for a device to take the CPU's algorithm of attention")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_NEEDS if name == "transformer" else ()) for name in _MODELS]
)
def test_training_equals_the_cpus_bitwise(name: str) -> None:
    """Every loss, parameter and running statistic is equal. Each step changes the loss."""
    losses, state = _train(name, "cpu")

    card_losses, card_state = _train(name, "hpu")

    assert card_losses == losses
    assert len(set(losses)) == _STEPS
    assert all(torch.equal(card_state[key], value) for key, value in state.items())
