"""Trainings with and without torch.compile, compared bit for bit: models, strategies, the Trainer and Fabric.

    python tests/trials/compiled.py                      # everything
    python tests/trials/compiled.py --models mlp gpt2 --strategies single ddp --apis trainer --steps 10

Each row trains on simulated cards in eager mode: 50 steps without compilation, 50 compiled, and for the Trainer twice
with a checkpoint after the first half, compiled on one side of it only. It prints the largest difference of losses and
of weights, whether the names in the state are the same, the graphs of each region, and the seconds that compiling took.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
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
from harness import Table, parser
from hpu_compile import HPUCompile, compile_regions
from hpu_core import FabricSingleHPUStrategy, HPUAccelerator, SingleHPUStrategy
from hpu_testing import RankPool

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, WIDTH, TOKENS, VOCABULARY = 4, 16, 8, 32


class ConvolutionBlock(nn.Module):
    """Convolution with batch normalization and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        return images + torch.relu(self.norm(self.convolution(images)))


def make_mlp() -> nn.Module:
    """Return three linear layers."""
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, VOCABULARY))


def make_cnn() -> nn.Module:
    """Return three blocks of convolutions over an image of 4 x 4."""
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, VOCABULARY))
    return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 8, 1), *(ConvolutionBlock() for _ in range(3)), *head)


def make_transformer() -> nn.Module:
    """Return torch's transformer with four blocks and no dropout."""
    options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    layers = (nn.TransformerEncoderLayer(WIDTH, 2, 32, **options) for _ in range(4))
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY))


def make_gpt2() -> nn.Module:
    """Return transformers' GPT-2 with four blocks and no dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_embd": WIDTH, "n_layer": 4, "n_head": 2, "n_positions": TOKENS}
    dropout: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    tokens: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    model: nn.Module = GPT2LMHeadModel(GPT2Config(**sizes, **dropout, **tokens, use_cache=False))
    return model


def make_peft() -> nn.Module:
    """Return GPT-2 with PEFT's LoRA, whose other weights are frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_alpha=4, lora_dropout=0.0, target_modules=["c_attn"], fan_in_fan_out=True)
    model: nn.Module = get_peft_model(make_gpt2(), config)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": make_mlp,
    "cnn": make_cnn,
    "transformer": make_transformer,
    "gpt2": make_gpt2,
    "peft": make_peft,
}
BLOCKS = {"TransformerEncoderLayer", "ConvolutionBlock", "GPT2Block"}
# The Trainer's and Fabric's strategy by name.
STRATEGIES: dict[str, tuple[Any, Any]] = {
    "single": (SingleHPUStrategy, FabricSingleHPUStrategy),
    "ddp": (hpu_ddp.HPUDDPStrategy, hpu_ddp.FabricHPUDDPStrategy),
    "fsdp": (hpu_fsdp.HPUFSDPStrategy, hpu_fsdp.FabricHPUFSDPStrategy),
    "fsdp2": (hpu_fsdp.HPUModelParallelStrategy, hpu_fsdp.FabricHPUModelParallelStrategy),
    **dict.fromkeys(
        ("zero1", "zero2", "zero3"), (hpu_deepspeed.HPUDeepSpeedStrategy, hpu_deepspeed.FabricHPUDeepSpeedStrategy)
    ),
}


def make_model(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return MODELS[name]()


def make_batches(name: str, steps: int, rank: int) -> list[torch.Tensor]:
    """Return batches of rows for models of images, and of tokens for the others."""
    generator = torch.Generator().manual_seed(rank)
    if name in {"mlp", "cnn"}:
        return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(steps)]
    return [torch.randint(VOCABULARY, (BATCH, TOKENS), generator=generator) for _ in range(steps)]


def compute_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss against the next token, or against a class that depends on the row."""
    dtype = next(model.parameters()).dtype
    scores = model(batch.to(dtype) if batch.is_floating_point() else batch)
    scores = getattr(scores, "logits", scores).float()
    if batch.is_floating_point():
        return nn.functional.cross_entropy(scores, (batch.abs().sum(1) * 2).long() % VOCABULARY)
    return nn.functional.cross_entropy(scores[:, :-1].reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam([each for each in model.parameters() if each.requires_grad], 0.01)


def blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if type(module).__name__ in BLOCKS] or [
        module for module in model.modules() if type(module) is nn.Linear
    ]


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Shard a model by FSDP2."""
    from torch.distributed.fsdp import fully_shard

    for block in blocks(model):
        fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


def make_options(strategy: str, model: str, *, fabric: bool) -> dict[str, Any]:
    """Return the options that the Trainer and Fabric share, with the strategy."""
    options: dict[str, Any] = {}
    if strategy == "fsdp":
        options = {"auto_wrap_policy": {type(block) for block in blocks(make_model(model))}, "use_orig_params": True}
    elif strategy == "fsdp2":
        options = {"parallelize_fn": shard} if fabric else {"save_distributed_checkpoint": False}
    elif strategy.startswith("zero"):
        options = {"stage": int(strategy[-1]), "allgather_bucket_size": 10**6, "reduce_bucket_size": 10**6}
    return {
        "accelerator": HPUAccelerator(),
        "devices": 1 if strategy == "single" else 2,
        "strategy": STRATEGIES[strategy][fabric](**options),
    }


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
        return make_optimizer(self.trainer.model)  # type: ignore[arg-type] # It is set.


class Keep(pl.Callback):
    """Keeps the weights of start and end, and saves a checkpoint at the end if a path is given."""

    def __init__(self, checkpoint: Path | None) -> None:
        self.checkpoint = checkpoint
        self.start: dict[str, torch.Tensor] = {}
        self.state: dict[str, torch.Tensor] = {}

    def on_train_start(self, _: Any, module: Any) -> None:
        self.start = copy_state(module.model)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        if self.checkpoint is not None:
            trainer.save_checkpoint(self.checkpoint)
        self.state = copy_state(module.model)


def fit(  # noqa: PLR0913 - what a row varies
    model: str, strategy: str, steps: int, *, compiled: bool, save: Path | None = None, resume: Path | None = None
) -> dict[str, Any]:
    """Train by the Trainer.

    Args:
        model: Name of the model.
        strategy: Name of the strategy.
        steps: Last step.
        compiled: Whether the model is compiled.
        save: Checkpoint of the end.
        resume: Checkpoint of the half, with which to begin.
    """
    callback, keep = HPUCompile(), Keep(save)
    module = Module(model, sharded=strategy == "fsdp2")
    trainer = pl.Trainer(
        **make_options(strategy, model, fabric=False),
        max_steps=steps,
        callbacks=[*([callback] if compiled else []), keep],
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = make_batches(model, 1000, trainer.global_rank)[steps // 2 if resume else 0 :]
    # With a batch size, which DeepSpeed's strategy reads.
    loader: Any = torch.utils.data.DataLoader(torch.cat(batches), batch_size=BATCH)  # type: ignore[arg-type]
    resuming: dict[str, Any] = {"ckpt_path": resume, "weights_only": False} if resume else {}
    trainer.fit(module, loader, **resuming)
    return result([float(each) for each in module.losses], keep.start, keep.state, callback.report)


def train(model: str, strategy: str, steps: int, *, compiled: bool) -> dict[str, Any]:
    """Train by Fabric."""
    fabric = lightning.fabric.Fabric(**make_options(strategy, model, fabric=True))
    fabric.launch()
    network: Any = make_model(model)
    if strategy in {"fsdp", "fsdp2"}:
        wrapped = fabric.setup_module(network)
        optimizer: Any = fabric.setup_optimizers(make_optimizer(wrapped))
    else:
        wrapped, optimizer = fabric.setup(network, make_optimizer(network))
    losses, start = [], copy_state(wrapped)
    with compile_regions(wrapped) if compiled else contextlib.nullcontext() as compilation:
        for batch in make_batches(model, steps, fabric.global_rank):
            loss = compute_loss(wrapped, batch.to(fabric.device))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        report = compilation.report if compilation is not None else None
    return result(losses, start, copy_state(wrapped), report)


def result(losses: list[float], start: dict[str, Any], state: dict[str, Any], report: Any) -> dict[str, Any]:
    return {"losses": losses, "moved": difference(start, state), "state": state, "report": report}


def copy_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return this rank's weights on the CPU."""
    tensors = {name: getattr(value, "_local_tensor", value) for name, value in module.named_parameters()}
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}


def compare(model: str, strategy: str, api: str, steps: int, folder: str) -> dict[str, Any]:
    """Train on this rank with and without compilation; return the row, or the error."""
    torch.set_num_threads(1)
    resumed: list[dict[str, Any]] = []
    try:
        run = train if api == "fabric" else fit
        plain, compiled = (run(model, strategy, steps, compiled=each) for each in (False, True))
        for first in (True, False) if api == "trainer" else ():
            place = Path(folder, f"{first}.ckpt")
            fit(model, strategy, steps // 2, compiled=first, save=place)
            resumed.append(fit(model, strategy, steps, compiled=not first, resume=place))
    except Exception as error:  # noqa: BLE001 - a row of the table
        return {"error": f"{type(error).__name__}: {error}", "details": traceback.format_exc()}
    report = compiled["report"]
    return {
        "losses": max(abs(a - b) for a, b in zip(plain["losses"], compiled["losses"], strict=True)),
        "weights": difference(plain["state"], compiled["state"]),
        "resumed": [difference(plain["state"], each["state"]) for each in resumed],
        "same names": plain["state"].keys() == compiled["state"].keys(),
        # Not the loss, which an adapter of a random model does not lower.
        "trained": plain["moved"] > 0,
        "graphs": "; ".join(f"{region.name}: {dict(region.graphs)}" for region in report.regions),
        "breaks": sum(len(region.breaks) for region in report.regions),
        "compiling": report.seconds,
        "steady": report.steady_after,
        "details": str(report),
    }


def difference(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max((float((first[name] - second[name]).abs().max()) for name in first if first[name].numel()), default=0.0)


def judge(row: dict[str, Any]) -> list[str]:
    """Return what is not as promised of a row without an error."""
    checks = {
        "not bit-equal": row["losses"] or row["weights"] or any(row["resumed"]),
        "other names": not row["same names"],
        "not trained": not row["trained"],
    }
    return [name for name, is_so in checks.items() if is_so]


def main() -> int:
    """Print the table; return 1 if a row differs."""
    arguments = parser(__doc__)
    choices = {"models": list(MODELS), "strategies": list(STRATEGIES), "apis": ["trainer", "fabric"]}
    for name, values in choices.items():
        arguments.add_argument(f"--{name}", nargs="*", default=values, choices=values)
    arguments.add_argument("--steps", type=int, default=50)
    arguments.add_argument("--verbose", action="store_true", help="print reports and tracebacks as well")
    options = arguments.parse_args()
    columns = ("losses", "weights", "resumed", "graphs", "breaks", "compiling, s", "steady after")
    table = Table("strategy", "model", "api", *columns, options=options)
    with contextlib.ExitStack() as stack:
        pools: dict[int, RankPool] = {}
        for strategy, model, api in itertools.product(options.strategies, options.models, options.apis):
            count = 1 if strategy == "single" else 2
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if count not in pools:
                pools[count] = stack.enter_context(RankPool(count, folder))
            try:
                row = pools[count].call(compare, model, strategy, api, options.steps, str(folder), seconds=200)[0]
            except AssertionError as error:
                pools.pop(count)
                row = {"error": str(error)[-300:], "details": str(error)}
            if "error" in row:
                # That of the rank that has failed first is the same on all. ZeRO 3 is refused.
                text = row["error"].splitlines()[0][:200]
                refused = "ZeRO stage 3" in row["error"]
                table.add(strategy, model, api, text if refused else "", *[""] * 6, problems=[] if refused else [text])
            else:
                resumed = ", ".join(f"{each:g}" for each in row["resumed"]) or "-"
                cells = [f"{row['losses']:g}", f"{row['weights']:g}", resumed, row["graphs"], row["breaks"]]
                cells += [f"{row['compiling']:.1f}", row["steady"]]
                table.add(strategy, model, api, *cells, problems=judge(row))
            if options.verbose:
                print(row["details"], flush=True)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
