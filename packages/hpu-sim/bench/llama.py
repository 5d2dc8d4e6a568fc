"""Llama-2-shaped models in plain torch, trained by Lightning or by a loop of its own; made to be planned.

    hpu-sim plan --nodes 8 --devices 8 packages/hpu-sim/bench/llama.py --size 7b --loop plain --shard

The weights and the tokens are random. Planned, nothing of the size of a weight is allocated.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from hpu_sim import plan


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    feed_forward: int
    vocabulary: int = 32000


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 128, 256),
    "1b": Shape(16, 2048, 32, 8, 8192, 128256),
    "7b": Shape(32, 4096, 32, 32, 11008),
    "70b": Shape(80, 8192, 64, 8, 28672),
}


class Block(nn.Module):
    """A layer: attention with rotary positions, and a gated feed-forward network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.size = shape.hidden // shape.heads
        keys = shape.key_heads * self.size
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key = nn.Linear(shape.hidden, keys, bias=False)
        self.value = nn.Linear(shape.hidden, keys, bias=False)
        self.output = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.feed_forward_norm = nn.RMSNorm(shape.hidden)
        self.gate = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Return the hidden states (batch, sequence, hidden) after this layer."""
        inputs = self.attention_norm(hidden)
        batch, length, _ = inputs.shape
        query, key, value = (
            each(inputs).view(batch, length, -1, self.size).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        groups = self.shape.heads // self.shape.key_heads
        if groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        # A card takes separate operators for torch's own attention.
        mixed = FusedSDPA.apply(query, key, value, None, 0.0, True)
        hidden = hidden + self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        inputs = self.feed_forward_norm(hidden)
        result: Tensor = hidden + self.down(nn.functional.silu(self.gate(inputs)) * self.up(inputs))
        return result


def rotate(states: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Return states (batch, heads, sequence, size) rotated by their position."""
    cosine, sine = rotation
    first, second = states.chunk(2, dim=-1)
    return (states * cosine + torch.cat((-second, first), dim=-1) * sine).to(states.dtype)


class Llama(nn.Module):
    """The model, from tokens (batch, sequence) to the loss of predicting the next token."""

    def __init__(self, shape: Shape, length: int, *, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        size = shape.hidden // shape.heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss."""
        hidden = self.embedding(tokens)
        rotation = (self.cosine.to(hidden.dtype), self.sine.to(hidden.dtype))
        for block in self.blocks:
            hidden = (
                checkpoint(block, hidden, rotation, use_reentrant=False) if self.recompute else block(hidden, rotation)
            )
        scores = self.head(self.norm(hidden))
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def train_with_lightning(options: argparse.Namespace) -> None:
    """Train with Lightning's Trainer."""
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Llama(SHAPES[options.size], options.length, recompute=options.recompute)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            del batch_idx
            loss: Tensor = self.model(batch[0])
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    trainer = Trainer(accelerator="hpu", devices="auto", precision=options.precision, max_steps=10)
    trainer.fit(Module(), DataLoader(TensorDataset(tokens(options)), batch_size=options.batch))


def train(options: argparse.Namespace) -> None:
    """Train with a loop, and with FSDP2 over all ranks if `--shard` is given."""
    model = Llama(SHAPES[options.size], options.length, recompute=options.recompute).to(torch.bfloat16)
    if options.shard:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh("hpu", (torch.distributed.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(enable=True)  # HCCL has no average.
    model.to("hpu")
    optimizer = torch.optim.AdamW(model.parameters())
    batch = tokens(options)[: options.batch]
    for _ in range(3):
        with plan.step():
            model(batch.to("hpu")).backward()
            optimizer.step()
            optimizer.zero_grad()


def tokens(options: argparse.Namespace) -> Tensor:
    """Return random tokens (samples, length)."""
    return torch.randint(0, 256, (options.batch * 4, options.length))


def main() -> None:
    """Train as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="7b")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="bf16-true")
    parser.add_argument("--loop", choices=("lightning", "plain"), default="lightning")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    options = parser.parse_args()
    (train_with_lightning if options.loop == "lightning" else train)(options)


if __name__ == "__main__":
    main()
