"""Rank of transformers' Trainer that fine-tunes a tiny random BERT; rank 0 prints the results."""

from __future__ import annotations

import json
import sys
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

_EXAMPLES: Final = 64
_LENGTH: Final = 12
_WORDS: Final = 20


class Sentences(Dataset[dict[str, Tensor]]):
    """Random sentences of words 2 to 19. Those that start with a word from 11 on have class 1."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.words = torch.randint(2, _WORDS, (_EXAMPLES, _LENGTH), generator=generator)
        self.labels = (self.words[:, 0] > _WORDS // 2).long()

    def __len__(self) -> int:
        return _EXAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": self.labels[index]}


def main(folder: str) -> None:
    """Train, save, and print the results."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=_WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        num_train_epochs=8,
        learning_rate=3e-3,
        logging_steps=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Sentences())
    trainer.train()
    trainer.save_model(folder)
    if trainer.is_world_process_zero():
        known = {
            "device": str(trainer.args.device),
            "model": str(next(trainer.model.parameters()).device),
            "world_size": trainer.args.world_size,
            "parallel": type(trainer.model_wrapped).__name__,
            "backend": torch.distributed.get_backend(),
            "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        }
        print(json.dumps(known), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
