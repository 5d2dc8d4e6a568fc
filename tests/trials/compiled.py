"""Trainings with and without torch.compile, compared bit for bit: models, strategies, the Trainer and Fabric.

    python tests/trials/compiled.py                      # everything
    python tests/trials/compiled.py --models mlp gpt2 --strategies single ddp --apis trainer --steps 10

Each row trains on simulated cards in eager mode: 50 steps without compilation, 50 compiled, and for the Trainer twice
with a checkpoint after the first half, compiled on one side of it only. It prints the largest difference of losses and
of weights, whether the names in the state are the same, the graphs of each region, and the seconds that compiling took.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.fabric
import lightning.pytorch as pl
import torch
from torch import nn

import hpu_ddp
import hpu_deepspeed
import hpu_fsdp
from hpu_compile import HPUCompile, compile_regions
from hpu_core import FabricSingleHPUStrategy, HPUAccelerator, SingleHPUStrategy
from hpu_testing import RankPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH, WIDTH, TOKENS, VOCABULARY = 4, 16, 8, 32


class Perceptron(nn.Sequential):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, VOCABULARY))


class ConvolutionBlock(nn.Module):
    """Convolution with batch normalization and a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        return images + torch.relu(self.norm(self.convolution(images)))


class Convolutions(nn.Module):
    """Three blocks of convolutions over an image of 4 x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 1)
        self.blocks = nn.ModuleList(ConvolutionBlock(8) for _ in range(3))
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, classes)."""
        images = self.stem(rows.view(-1, 1, 4, 4))
        for block in self.blocks:
            images = block(images)
        scores: torch.Tensor = self.head(images.mean((2, 3)))
        return scores


class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.forwards = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        normed = self.norms[0](rows)
        rows = rows + self.attention(normed, normed, normed, need_weights=False)[0]
        result: torch.Tensor = rows + self.forwards(self.norms[1](rows))
        return result


class Transformer(nn.Module):
    """Four blocks over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(TransformerBlock() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token, (batch, tokens, vocabulary)."""
        rows = self.embedding(tokens)
        for layer in self.layers:
            rows = layer(rows)
        scores: torch.Tensor = self.head(rows)
        return scores


def make_gpt2() -> nn.Module:
    """Return transformers' GPT-2 with four blocks and no dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {
        "n_embd": WIDTH,
        "n_layer": 4,
        "n_head": 2,
        "n_positions": TOKENS,
        "vocab_size": VOCABULARY,
    }
    dropout: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(**sizes, **dropout, use_cache=False, bos_token_id=0, eos_token_id=0)
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def make_peft() -> nn.Module:
    """Return GPT-2 with PEFT's LoRA, whose other weights are frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_alpha=4, lora_dropout=0.0, target_modules=["c_attn"], fan_in_fan_out=True)
    model: nn.Module = get_peft_model(make_gpt2(), config)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    # Each with what its inputs are.
    "mlp": (Perceptron, "rows"),
    "cnn": (Convolutions, "rows"),
    "transformer": (Transformer, "tokens"),
    "gpt2": (make_gpt2, "tokens"),
    "peft": (make_peft, "tokens"),
}
STRATEGIES = ("single", "ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3")


def make_model(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return MODELS[name][0]()


def make_batches(name: str, steps: int, rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    if MODELS[name][1] == "rows":
        return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(steps)]
    return [torch.randint(VOCABULARY, (BATCH, TOKENS), generator=generator) for _ in range(steps)]


def make_loader(batches: list[torch.Tensor]) -> Any:
    # With a batch size, which DeepSpeed's strategy reads.
    return torch.utils.data.DataLoader(torch.cat(batches), batch_size=BATCH)  # type: ignore[arg-type]


def compute_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss against the next token, or against a class that depends on the row."""
    dtype = next(model.parameters()).dtype
    scores = model(batch.to(dtype) if batch.is_floating_point() else batch)
    scores = getattr(scores, "logits", scores).float()
    if batch.is_floating_point():
        return nn.functional.cross_entropy(scores, (batch.abs().sum(1) * 2).long() % VOCABULARY)
    return nn.functional.cross_entropy(scores[:, :-1].reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))


def blocks(model: nn.Module) -> list[nn.Module]:
    names = {"TransformerBlock", "ConvolutionBlock", "GPT2Block"}
    return [module for module in model.modules() if type(module).__name__ in names] or [
        module for module in model.modules() if type(module) is nn.Linear
    ]


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Shard a model by FSDP2."""
    from torch.distributed.fsdp import fully_shard

    for block in blocks(model):
        fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


class Module(pl.LightningModule):
    """Training of a model that keeps its losses."""

    def __init__(self, name: str, *, sharded: bool) -> None:
        super().__init__()
        self.model = make_model(name)
        self.sharded = sharded
        self.losses: list[torch.Tensor] = []

    def configure_model(self) -> None:
        if self.sharded:
            shard(self.model, self.device_mesh)
            self.sharded = False

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = compute_loss(self.model, batch)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        model: Any = self.trainer.model
        return torch.optim.Adam([each for each in model.parameters() if each.requires_grad], 0.01)


def make_strategy(name: str, *, fabric: bool, model: str) -> Any:
    if name == "single":
        return FabricSingleHPUStrategy() if fabric else SingleHPUStrategy()
    if name == "ddp":
        return hpu_ddp.FabricHPUDDPStrategy() if fabric else hpu_ddp.HPUDDPStrategy()
    if name == "fsdp":
        policy = {type(block) for block in blocks(make_model(model))}
        return (hpu_fsdp.FabricHPUFSDPStrategy if fabric else hpu_fsdp.HPUFSDPStrategy)(
            auto_wrap_policy=policy, use_orig_params=True
        )
    if name == "fsdp2":
        if fabric:
            return hpu_fsdp.FabricHPUModelParallelStrategy(shard)
        return hpu_fsdp.HPUModelParallelStrategy(save_distributed_checkpoint=False)
    kind = hpu_deepspeed.FabricHPUDeepSpeedStrategy if fabric else hpu_deepspeed.HPUDeepSpeedStrategy
    options: dict[str, Any] = {"stage": int(name[-1]), "allgather_bucket_size": 10**6, "reduce_bucket_size": 10**6}
    return kind(**options)


def fit(  # noqa: PLR0913 - what a row varies
    model: str, strategy: str, steps: int, folder: Path | None, *, compiled: bool, half: int
) -> dict[str, Any]:
    """Train by the Trainer.

    Args:
        model: Name of the model.
        strategy: Name of the strategy.
        steps: Last step.
        folder: Folder of checkpoints.
        compiled: Whether the model is compiled.
        half: 0 for a whole training, 1 to save a checkpoint at the end, 2 to resume from it.
    """
    callback = HPUCompile()
    module = Module(model, sharded=strategy == "fsdp2")
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        devices=1 if strategy == "single" else 2,
        strategy=make_strategy(strategy, fabric=False, model=model),
        max_steps=steps,
        callbacks=[callback] if compiled else [],
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = make_batches(model, 1000, trainer.global_rank)
    checkpoint = None if folder is None else str(folder / "checkpoint.ckpt")
    offset = steps // 2 if half == 2 else 0
    start: dict[str, torch.Tensor] = {}
    state: dict[str, torch.Tensor] = {}

    class Keep(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            del trainer
            start.update(copy_state(pl_module.model))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if half == 1:
                trainer.save_checkpoint(checkpoint)
            state.update(copy_state(pl_module.model))

    vars(trainer)["callbacks"].append(Keep())
    resume: dict[str, Any] = {"ckpt_path": checkpoint, "weights_only": False} if half == 2 else {}
    trainer.fit(module, make_loader(batches[offset:]), **resume)
    losses = [float(each) for each in module.losses]
    return {"losses": losses, "moved": difference(start, state), "state": state, "report": callback.report}


def train(model: str, strategy: str, steps: int, *, compiled: bool) -> dict[str, Any]:
    """Train by Fabric."""
    fabric = lightning.fabric.Fabric(
        accelerator=HPUAccelerator(),
        devices=1 if strategy == "single" else 2,
        strategy=make_strategy(strategy, fabric=True, model=model),
    )
    fabric.launch()
    network: Any = make_model(model)
    sharded = strategy in {"fsdp", "fsdp2"}
    if sharded:
        wrapped = fabric.setup_module(network)
        optimizer: Any = torch.optim.Adam([each for each in wrapped.parameters() if each.requires_grad], 0.01)
        optimizer = fabric.setup_optimizers(optimizer)
    else:
        optimizer = torch.optim.Adam([each for each in network.parameters() if each.requires_grad], 0.01)
        wrapped, optimizer = fabric.setup(network, optimizer)
    losses, report, start = [], None, copy_state(wrapped)
    with compile_regions(wrapped) if compiled else contextlib.nullcontext() as compilation:
        for batch in make_batches(model, steps, fabric.global_rank):
            loss = compute_loss(wrapped, batch.to(fabric.device))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        report = compilation.report if compilation is not None else None
    state = copy_state(wrapped)
    return {"losses": losses, "moved": difference(start, state), "state": state, "report": report}


def copy_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return this rank's weights on the CPU."""
    tensors = {name: getattr(value, "_local_tensor", value) for name, value in module.named_parameters()}
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}


def compare(model: str, strategy: str, api: str, steps: int, folder: str) -> dict[str, Any]:
    """Train on this rank with and without compilation; return the row, or the error."""
    start = time.monotonic()
    torch.set_num_threads(1)
    try:
        if api == "fabric":
            plain, compiled = (train(model, strategy, steps, compiled=each) for each in (False, True))
            resumed: list[dict[str, Any]] = []
        else:
            plain, compiled = (fit(model, strategy, steps, None, compiled=each, half=0) for each in (False, True))
            resumed = []
            for name, first in (("first", True), ("second", False)):
                place = Path(folder, name)
                fit(model, strategy, steps // 2, place, compiled=first, half=1)
                resumed.append(fit(model, strategy, steps, place, compiled=not first, half=2))
    except Exception as error:  # noqa: BLE001 - a row of the table
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    report = compiled["report"]
    return {
        "losses": max(abs(a - b) for a, b in zip(plain["losses"], compiled["losses"], strict=True)),
        "weights": difference(plain["state"], compiled["state"]),
        "resumed": [difference(plain["state"], each["state"]) for each in resumed],
        "same names": plain["state"].keys() == compiled["state"].keys(),
        # Not the loss, which an adapter of a random model does not lower.
        "trained": plain["moved"] > 0,
        "regions": [f"{region.name}: {dict(region.graphs)}" for region in report.regions],
        "breaks": sum(len(region.breaks) for region in report.regions),
        "report": str(report),
        "compiling": report.seconds,
        "steady": report.steady_after,
        "seconds": time.monotonic() - start,
    }


def difference(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max((float((first[name] - second[name]).abs().max()) for name in first if first[name].numel()), default=0.0)


def rows(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for strategy in options.strategies:
        for model in options.models:
            for api in options.apis:
                yield model, strategy, api


def main() -> int:
    """Print the table; return 1 if a row differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--apis", nargs="*", default=["trainer", "fabric"], choices=["trainer", "fabric"])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--verbose", action="store_true", help="print reports and tracebacks as well")
    options = parser.parse_args()
    failed = 0
    print("| strategy | model | api | losses | weights | resumed | graphs | breaks | compiling, s | steady after |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with contextlib.ExitStack() as stack:
        pools: dict[int, RankPool] = {}
        for model, strategy, api in rows(options):
            count = 1 if strategy == "single" else 2
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if count not in pools:
                pools[count] = stack.enter_context(RankPool(count, folder))
            try:
                found = pools[count].call(compare, model, strategy, api, options.steps, str(folder), seconds=200)
            except AssertionError as error:
                pools.pop(count)
                found = [{"error": f"{str(error)[-300:]}", "traceback": str(error)}]
            row = found[0]
            if "error" in row:
                # The error of the rank that has failed first is the same on all.
                print(f"| {strategy} | {model} | {api} | {row['error'].splitlines()[0][:200]} |", flush=True)
                failed += "ZeRO stage 3" not in row["error"]
            else:
                resumed = ", ".join(f"{each:g}" for each in row["resumed"]) or "-"
                print(
                    f"| {strategy} | {model} | {api} | {row['losses']:g} | {row['weights']:g} | {resumed} | "
                    f"{'; '.join(row['regions'])} | {row['breaks']} | {row['compiling']:.1f} | {row['steady']} |",
                    flush=True,
                )
                equal = not row["losses"] and not row["weights"] and not any(row["resumed"])
                failed += not (equal and row["same names"] and row["trained"])
            if options.verbose:
                print(row.get("traceback") or row["report"], flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
