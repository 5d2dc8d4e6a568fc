"""Models of the tests, and trainings of them."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from hpu_core import frameworks

_pytorch: Any = frameworks.current().pytorch()


class Attention(nn.Module):
    """Causal attention of 4 heads of size 4."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def heads(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(*tensor.shape[:2], 4, 4).transpose(1, 2)

    def attend(self, inputs: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.heads(each(inputs)) for each in (self.query, self.key, self.value))
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.attend(inputs).transpose(1, 2).flatten(2)


class Norm(nn.Module):
    """RMS normalization as models of text write it."""

    def __init__(self, features: int = 16, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.variance_epsilon = eps

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(inputs.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (inputs.float() * scale).to(inputs.dtype)


class Block(nn.Module):
    """Attention and a feed-forward part, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.up, self.down = Norm(), Attention(), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.attention(self.norm(inputs))
        output: torch.Tensor = hidden + self.down(functional.gelu(self.up(hidden)))
        return output


class Encoder(nn.Module):
    """torch's encoder with padding, and two blocks."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, inputs: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(inputs, src_key_padding_mask=is_padding)
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(hidden.mean(1))
        return logits


class Classifier(_pytorch.LightningModule):  # type: ignore[misc] # The class depends on the framework.
    """Module that keeps its losses."""

    def __init__(self, optimizer: Any = torch.optim.SGD, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = Encoder()
        self.losses: list[torch.Tensor] = []
        self.make_optimizer: Any = lambda parameters: optimizer(parameters, **({"lr": 0.05} | options))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, labels, is_padding = batch
        return functional.cross_entropy(self.net(inputs, is_padding), labels)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(outputs["loss"].detach())

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.training_step(batch)

    def configure_optimizers(self) -> Any:
        return self.make_optimizer(self.parameters())


def make_loader(batches: int = 4, rank: int = 0) -> Any:
    """Return batches of two samples with six tokens, of which some are padding."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(2 * batches, 6, 16, generator=generator)
    labels = torch.randint(0, 4, (2 * batches,), generator=generator)
    is_padding = torch.arange(6) >= torch.randint(3, 7, (2 * batches, 1), generator=generator)
    return DataLoader(TensorDataset(inputs, labels, is_padding), batch_size=2)


def make_trainer(*callbacks: Any, **options: Any) -> Any:
    """Return a Trainer for one epoch on a simulated card."""
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    defaults: dict[str, Any] = {"accelerator": "hpu", "devices": 1, "max_epochs": 1, **dict.fromkeys(quiet, False)}
    return _pytorch.Trainer(callbacks=list(callbacks), **{**defaults, **options})


def losses_of(module: Any, *callbacks: Any, loader: Any = None, **options: Any) -> torch.Tensor:
    """Train a module, and return its losses."""
    make_trainer(*callbacks, **options).fit(module, loader or make_loader())
    return torch.stack(module.losses).float().cpu()
