"""Program that `hpu-sim plan --model` plans: a language model of transformers, made of its configuration alone.

The weights are never read. It trains with AdamW on samples of one length: weights of two bytes and what AdamW keeps in
bfloat16 ("bf16-true"), as transformers loads them, and others in float32 under autocast ("bf16-mixed"). With FSDP,
each block is a unit.
"""

from __future__ import annotations

import sys
from typing import Any

from hpu_sim.plan import modules, session
from hpu_sim.plan.errors import PlanError


def main(path: str, batch: int, length: int) -> None:  # noqa: C901 - a program
    """Train a model for some steps.

    Args:
        path: ``config.json``.
        batch: Samples per card.
        length: Tokens of a sample.

    Raises:
        PlanError: If Lightning, hpu-core or transformers is missing, or the configuration is that of no language model.
    """
    try:
        import torch
        import transformers
        from lightning import LightningModule, Trainer

        import hpu_core  # noqa: F401 - registers the accelerator
    except ImportError as error:
        raise PlanError(f"`--model` needs transformers, lightning and hpu-core: {error}") from error
    from torch.utils.data import DataLoader, Dataset

    try:
        config = transformers.AutoConfig.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise PlanError(f"`--model` must be a configuration of transformers, got {path!r} ({error})") from error
    if type(config) not in transformers.AutoModelForCausalLM._model_mapping:  # noqa: SLF001 - no public list
        raise PlanError(f"`--model` must be the configuration of a causal language model, got {config.model_type!r}")
    longest = getattr(config, "max_position_embeddings", length)
    if length > longest:
        raise PlanError(f"`--length` must be at most the model's {longest} positions, got {length}")

    class Samples(Dataset[Any]):
        def __len__(self) -> int:
            return batch << 20

        def __getitem__(self, index: int) -> Any:
            return {"input_ids": torch.zeros(length, dtype=torch.int64)}

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model: Any = transformers.AutoModelForCausalLM.from_config(config).to(torch.get_default_dtype())

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            del batch_idx
            return self.model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    # transformers 4 and 5 have different names for it.
    stored = str(getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or "float32")
    trainer = Trainer(accelerator="hpu", precision="bf16-true" if stored.endswith("16") else "bf16-mixed")
    module = Model()
    if "fsdp" in type(trainer.strategy).__name__.lower():
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        units = {type(each) for each in modules.repeated_blocks(module)}
        strategy_of: Any = trainer.strategy
        strategy_of.kwargs["auto_wrap_policy"] = ModuleWrapPolicy(units)
    if session.recorder is not None:
        kept = "bfloat16" if str(trainer.precision) == "bf16-true" else "float32"
        session.recorder.notes.add(
            f"Weights and the state of AdamW are {kept} ({trainer.precision}), those of the configuration "
            f"{stored.removeprefix('torch.')}; `--precision bf16-mixed` has them in float32, bf16-true in bfloat16."
        )
    trainer.fit(module, DataLoader(Samples(), batch_size=batch))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
