"""LoRA adapters of PEFT in a GPT-2 of transformers, trained with the strategy that the first argument names."""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from hpu_fsdp import HPUFSDPStrategy


class LanguageModel(lightning.LightningModule):
    """GPT-2 with two blocks and adapters, which records its losses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=2,
            vocab_size=64,
            n_positions=32,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
        )
        adapters = LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
        self.net = get_peft_model(GPT2LMHeadModel(config), adapters)
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.net(input_ids=batch[0], labels=batch[0]).loss
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return an optimizer of the adapters."""
        return torch.optim.AdamW([part for part in self.parameters() if part.requires_grad], lr=0.01)


def main() -> None:
    """Train 8 steps; print the losses, averaged over the ranks."""
    strategy: Any = sys.argv[1]
    if strategy == "fsdp by block":
        strategy = HPUFSDPStrategy(auto_wrap_policy={GPT2Block}, use_orig_params=True)
    trainer = lightning.Trainer(
        accelerator="hpu",
        devices=2,
        strategy=strategy,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    module = LanguageModel()
    tokens = torch.randint(64, (64, 16), generator=torch.Generator().manual_seed(1))
    trainer.fit(module, DataLoader(TensorDataset(tokens), batch_size=4))
    losses = trainer.strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    if trainer.is_global_zero:
        print("LOSSES", losses.tolist())


if __name__ == "__main__":
    main()
