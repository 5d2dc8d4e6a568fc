"""Models and training loops that a test plans and runs on the simulated device."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

import hpu_sim
from hpu_sim import plan
from hpu_sim.plan import compare
from hpu_sim.prediction.recording import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.plan.schema import StrategyPlan
    from hpu_sim.prediction.recording import Recording, StepRecording

BATCH: Final = 16
#: Tokens of a sequence, for the small transformer and for GPT-2.
LENGTH: Final = 12
LENGTH_OF_GPT2: Final = 64
#: Layers, width and heads of GPT-2 with 124 million parameters, and its vocabulary and positions.
GPT2: Final = (12, 768, 12, 50257, 1024)


class Attention(nn.Module):
    """A layer of a transformer with tied input and output embeddings, from tokens (batch, seq) to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean score of each class."""
        scores: Tensor = self.head(self.block(self.embedding(tokens)))
        return scores.mean(dim=1)


class GPT2Block(nn.Module):
    """A layer of GPT-2; tensor parallelism divides its heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the hidden states (batch, seq, width) after this layer."""
        batch, length, _ = hidden.shape
        mixed = self.attention(self.attention_norm(hidden)).view(batch, length, -1, 3, self.size)
        query, key, value = mixed.transpose(1, 2).unbind(3)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(batch, length, -1))
        result: Tensor = hidden + self.down(nn.functional.gelu(self.up(self.mlp_norm(hidden))))
        return result


class GPT2Model(nn.Module):
    """GPT-2 with tied embeddings, from tokens (batch, seq) to scores (batch * seq, vocabulary)."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.Sequential(*[GPT2Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of every position."""
        positions = self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        hidden = self.norm(self.blocks(self.tokens(tokens) + positions))
        scores: Tensor = self.head(hidden.flatten(0, 1))
        return scores


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.rand(BATCH, 64)


def cnn() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 64, 10)), torch.rand(BATCH, 3, 16, 16)


def transformer() -> tuple[nn.Module, Tensor]:
    return Attention(), torch.randint(0, 100, (BATCH, LENGTH))


def attention() -> tuple[nn.Module, Tensor]:
    return GPT2Model(2, 32, 4, 100, 64), torch.randint(0, 100, (2, LENGTH_OF_GPT2))


def gpt2() -> tuple[nn.Module, Tensor]:
    return GPT2Model(*GPT2), torch.randint(0, GPT2[3], (1, LENGTH_OF_GPT2))


MODELS: Final = {"mlp": mlp, "cnn": cnn, "transformer": transformer}
#: Linear layers that tensor parallelism divides, by model: by output features, and by input features.
DIVIDED: Final = {
    "mlp": (("0",), ("2",)),
    "cnn": (("5",), ()),
    "transformer": (("block.linear1",), ("block.linear2",)),
    "gpt2": (("blocks.*.attention", "blocks.*.up"), ("blocks.*.projection", "blocks.*.down")),
}


def parallelize(model: nn.Module, strategy: str, name: str) -> nn.Module:
    """Return a model that trains on all ranks.

    Args:
        model: Model on the device.
        strategy: "ddp", "fsdp", "fsdp2" or "tp".
        name: Name of the model in :data:`DIVIDED`, for tensor parallelism.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("hccl")
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp":
        blocks = ModuleWrapPolicy({GPT2Block, nn.TransformerEncoderLayer})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=blocks, device_id=torch.device("hpu", 0), use_orig_params=True
        )
    mesh = init_device_mesh("hpu", (torch.distributed.get_world_size(),))
    if strategy == "tp":
        columns, rows = DIVIDED[name]
        # A layer without a partner gathers its outputs.
        by_columns = ColwiseParallel(output_layouts=None if rows else Replicate())
        plans: dict[str, ParallelStyle] = dict.fromkeys(columns, by_columns)
        plans |= {each: RowwiseParallel() for each in rows}
        return parallelize_module(model, mesh, plans)
    owners = Counter(id(each) for child in model.children() for each in child.parameters())
    for child in (*getattr(model, "blocks", ()), *model.children()):
        parameters = list(child.parameters())
        # Tied weights belong to the root.
        if parameters and all(owners[id(each)] == 1 for each in parameters) and not isinstance(child, nn.Sequential):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(enable=True)  # HCCL has no average.
    return model


def train(
    make: Callable[[], tuple[nn.Module, Tensor]],
    steps: int = 3,
    wrap: str = "",
    name: str = "mlp",
    *,
    decomposes: bool = True,
) -> list[dict[str, int]]:
    """Train and return the simulator's counters after each step.

    Args:
        make: Function that returns a model and a batch.
        steps: Number of steps.
        wrap: Strategy of :func:`parallelize`; empty for one device.
        name: Name of the model in :data:`DIVIDED`.
        decomposes: Whether attention takes the path of a card, which a plan takes by itself.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel  # torch before 2.3 has none.

    torch.manual_seed(0)
    module, batch = make()
    model: nn.Module = module.to("hpu")
    if wrap:
        model = parallelize(model, wrap, name)
    optimizer = torch.optim.AdamW(model.parameters())
    counters = []
    for _ in range(steps):
        with plan.step(), sdpa_kernel(SDPBackend.MATH) if decomposes else contextlib.nullcontext():
            scores = model(batch.to("hpu"))
            targets = torch.zeros(len(scores), dtype=torch.int64, device="hpu")
            loss = nn.functional.cross_entropy(scores, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        counters.append(hpu_sim.stats())
    return counters


def run_on_device(make: Callable[[], tuple[nn.Module, Tensor]]) -> int:
    """Train on the simulated device and return the peak of its memory, less what other tests keep."""
    gc.collect()
    hpu_sim.reset_stats()
    before = hpu_sim.stats()["allocated_bytes"]
    return train(make)[-1]["peak_bytes"] - before


def planned(recording: Recording, generation: str, prices: dict[str, float] | None = None) -> StrategyPlan:
    """Return the plan of a recording on a generation."""
    return compare.strategy_plan(compare.clock_of(recording, generation), prices)


def bytes_of(step: StepRecording, category: str = "", phase: str = "") -> int:
    """Return the most bytes of a category, or of all, at the peaks of a step or at that of a part of it."""
    return max(
        sum(each.bytes for each in found if category in {"", CATEGORIES[each.category]})
        for name, found in step.peaks.items()
        if phase in {"", name}
    )
