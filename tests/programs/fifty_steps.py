"""Trainings of tiny language models for 50 steps, whose losses and weights are written to a file.

Arguments: the file, and the number of ranks: 1 for what the others are compared with, 2 for context parallelism and fp8
with sharded weights, or 4 for context parallelism.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import deepspeed
import torch
import transformers
from lightning import LightningModule, Trainer
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from hpu_core import SingleHPUStrategy
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy

STEPS, ROWS, LENGTH, VOCABULARY = 50, 4, 16, 32


def llama(key_heads: int = 4) -> Any:
    """Return a Llama of two layers."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=key_heads,
        vocab_size=VOCABULARY,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> Any:
    """Return a GPT-2 of two layers, without dropout."""
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH, bos_token_id=0, eos_token_id=0
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return transformers.GPT2LMHeadModel(config)


def t5() -> Any:
    """Return a T5 of two layers each, without dropout."""
    config = transformers.T5Config(
        d_model=32,
        d_ff=64,
        d_kv=8,
        num_heads=4,
        num_layers=2,
        vocab_size=VOCABULARY,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


# Each with whether sequences are padded, and whether activations are recomputed.
MODELS: dict[str, tuple[Any, bool, bool]] = {
    "Llama": (llama, False, False),
    "Llama, padded": (llama, True, False),
    "Llama, recomputed": (llama, False, True),
    "Llama, two key heads": (partial(llama, 2), False, False),
    "GPT-2, padded": (gpt2, True, False),
    "T5": (t5, False, False),
}
IN_FP8 = ("Llama", "GPT-2, padded", "T5")


class LanguageModel(LightningModule):
    """Language model that keeps its losses."""

    def __init__(self, make: Any, *, recompute: bool, shard: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.model = make()
        if recompute:
            self.model.gradient_checkpointing_enable()
        self.shard = shard
        self.losses: list[Any] = []

    def configure_model(self) -> None:
        """Shard the model with FSDP2, once."""
        if self.shard:
            self.shard = False
            mesh: Any = self.device_mesh
            fully_shard(self.model, mesh=mesh["data_parallel"], reshard_after_forward=False)

    def training_step(self, batch: Any, index: int) -> Any:
        """Return the loss."""
        loss = self.model(**batch)["loss"]
        self.losses.append(loss.detach().float())
        return loss

    def configure_optimizers(self) -> Any:
        """Return SGD, because adaptive steps amplify rounding errors."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def rows(*, padded: bool) -> list[dict[str, torch.Tensor]]:
    """Return the samples of all steps, eight batches again and again."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, VOCABULARY, (8 * ROWS, LENGTH), generator=generator)
    lengths = torch.randint(LENGTH // 2, LENGTH, (8 * ROWS, 1), generator=generator) if padded else LENGTH
    mask = (torch.arange(LENGTH) < lengths).long().expand(ids.shape)
    labels = ids.masked_fill(mask == 0, -100)
    made = [{"input_ids": i, "attention_mask": m, "labels": n} for i, m, n in zip(ids, mask, labels, strict=True)]
    return [made[index % len(made)] for index in range(STEPS * ROWS)]


def train(name: str, strategy: Any, folder: Path, ranks: int, precision: Any = "32-true") -> dict[str, Any]:
    """Return the losses of all ranks together, and the weights."""
    make, padded, recompute = MODELS[name]
    trainer: Any = Trainer(
        accelerator="hpu",
        strategy=strategy,
        devices=ranks,
        precision=precision,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    module = LanguageModel(make, recompute=recompute, shard=isinstance(strategy, HPUModelParallelStrategy))
    if precision == "fp8":
        trainer.precision_plugin.convert_modules(module, replace_layers=True)
    data: Any = rows(padded=padded)
    groups = ranks // getattr(strategy, "context_parallel_size", 1)
    group = trainer.global_rank * groups // ranks
    sampler: Any = DistributedSampler(data, num_replicas=groups, rank=group, shuffle=False)
    trainer.fit(module, DataLoader(data, batch_size=ROWS // groups, sampler=sampler))
    losses = trainer.strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    path = folder / "weights.ckpt"
    if isinstance(strategy, HPUDeepSpeedStrategy):
        with deepspeed.zero.GatheredParameters(list(module.parameters())):
            weights = {name: value.detach().float().cpu() for name, value in module.named_parameters()}
    else:
        trainer.save_checkpoint(path, weights_only=True)
        state = torch.load(path, weights_only=False)["state_dict"]
        weights = {name: value.cpu() for name, value in state.items() if torch.is_floating_point(value)}
    trainer.strategy.barrier()
    return {"losses": losses.tolist(), "weights": weights}


def main(path: Path, ranks: int) -> None:
    """Train all cases of a number of ranks."""
    fsdp = partial(HPUFSDPStrategy, state_dict_type="full")
    fsdp2 = partial(
        HPUModelParallelStrategy, data_parallel_size=ranks, tensor_parallel_size=1, save_distributed_checkpoint=False
    )
    found = {}
    run = partial(train, folder=path.parent, ranks=ranks)
    for name in MODELS:
        if ranks == 1:
            found[name] = run(name, SingleHPUStrategy())
        elif name != "T5":
            found[f"{name}, FSDP"] = run(name, fsdp(context_parallel_size=ranks))
    if ranks > 1:
        found["Llama, FSDP2"] = run("Llama", fsdp2(context_parallel_size=ranks))
    for name in IN_FP8 if ranks < 4 else ():
        strategies: dict[str, Any] = {"FSDP": fsdp, "FSDP2": fsdp2}
        strategies |= {f"ZeRO-{stage}": partial(HPUDeepSpeedStrategy, stage=stage) for stage in (1, 2, 3)}
        for strategy, make in strategies.items() if ranks == 2 else [("", SingleHPUStrategy)]:
            found[f"{name}, {strategy or 'one card'} fp8"] = run(name, make(), precision="fp8")
    torch.save(found, path.with_suffix(f".{torch.distributed.get_rank() if ranks > 1 else 0}"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]))
