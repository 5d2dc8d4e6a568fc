"""Small models, their data and a Trainer."""

from typing import Any

import torch
from torch import nn

from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks

_pytorch = frameworks.current().pytorch()
_Base = _pytorch.LightningModule

WIDTH = 8
CLASSES = 4
BATCH = 4


class Block(nn.Module):
    """Two linear layers with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        result: torch.Tensor = rows + self.second(torch.relu(self.first(rows)))
        return result


class Gate(Block):
    """Block of another class."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        return rows * torch.sigmoid(self.first(rows))


class Talking(Block):
    """Block with a line that torch.compile cannot trace."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        hidden = torch.relu(self.first(rows))
        torch._dynamo.graph_break()
        result: torch.Tensor = rows + self.second(hidden)
        return result


class Remembering(Block):
    """Block that creates a tensor in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: torch.Tensor | None = None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        if self.scale is None:
            self.scale = torch.ones(WIDTH, device=rows.device)
        return super().forward(rows) * self.scale


class Classifier(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Classifier of rows by blocks, which keeps its losses."""

    def __init__(self, *kinds: type[nn.Module], count: int = 4) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.stem = nn.Linear(WIDTH, WIDTH)
            self.blocks = nn.ModuleList(kind() for kind in kinds or (Block,) for _ in range(count))
            self.head = nn.Linear(WIDTH, CLASSES)
        self.losses: list[torch.Tensor] = []

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, classes)."""
        rows = self.stem(rows)
        for block in self.blocks:
            rows = block(rows)
        scores: torch.Tensor = self.head(rows)
        return scores

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss."""
        loss = nn.functional.cross_entropy(self(batch[0]).flatten(0, -2), batch[1].flatten())
        self.log("loss", loss)
        self.keep(loss)
        return loss

    @torch.compiler.disable  # type: ignore[untyped-decorator] # torch has no annotation
    def keep(self, loss: torch.Tensor) -> None:
        """Keep a loss."""
        self.losses.append(loss.detach())

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log the loss."""
        self.log("validation", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    test_step = validation_step

    def predict_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the scores."""
        scores: torch.Tensor = self(batch[0])
        return scores

    def configure_optimizers(self) -> Any:
        """Return an optimizer that has state."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_loader(steps: int = 4, *, more: int = 0, rank: int = 0) -> Any:
    """Return a DataLoader of batches, the last of them of `more` samples."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(steps * BATCH + more, WIDTH, generator=generator)
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rows, torch.randint(CLASSES, (len(rows),), generator=generator)), BATCH
    )


def make_trainer(*callbacks: Any, **options: Any) -> Any:
    """Return a Trainer for one card without logger, checkpoints and progress bar."""
    defaults: dict[str, Any] = {
        "accelerator": HPUAccelerator(),
        "strategy": SingleHPUStrategy(),
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return _pytorch.Trainer(**{**defaults, "callbacks": list(callbacks), **options})


def fit(*callbacks: Any, model: Any = None, loader: Any = None, **options: Any) -> Any:
    """Train a Classifier, or another model; return it."""
    model = model or Classifier()
    make_trainer(*callbacks, **options).fit(model, loader or make_loader())
    return model


def weights(model: nn.Module) -> list[torch.Tensor]:
    """Return the weights on the CPU."""
    return [parameter.detach().cpu() for parameter in model.parameters()]


def are_equal(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two models have the same weights, bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
