"""litgpt's LoRA script with a tiny model, a tokenizer of few words and one sentence."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import JSON
from litgpt.finetune import lora
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers

_BASE = Path("base")
_DATA = Path("data.json")
_WORDS = ("<unk>", "<s>", "</s>", "say", "word", "and", "Instruction", "Response", "Below", "is", "task", "request")


def create_base() -> None:
    """Write a model with random weights, its tokenizer and the data."""
    _BASE.mkdir()
    vocabulary = {word: index for index, word in enumerate(_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(_BASE / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "GPTNeoXTokenizer"}
    (_BASE / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")
    config = Config(
        name="tiny", block_size=64, n_layer=2, n_embd=32, n_head=2, padded_vocab_size=64, padding_multiple=64
    )
    torch.manual_seed(3)
    torch.save(GPT(config).state_dict(), _BASE / "lit_model.pth")
    save_config(config, _BASE)
    sample = {"instruction": "say word", "input": "", "output": "word and word"}
    _DATA.write_text(json.dumps([sample] * 32), encoding="utf-8")


def main() -> None:
    """Train 6 steps."""
    # Lightning starts the other rank later.
    if os.environ.get("LOCAL_RANK", "0") == "0":
        create_base()
    # litgpt stores the arguments of its command line.
    sys.argv[1:] = [str(_BASE)]
    lora.setup(
        _BASE,
        out_dir=Path("finetuned"),
        precision="32-true",
        devices=2,
        data=JSON(_DATA, val_split_fraction=0.25, num_workers=0),
        train=TrainArgs(
            save_interval=4,
            log_interval=1,
            global_batch_size=4,
            micro_batch_size=1,
            lr_warmup_steps=2,
            epochs=5,
            max_steps=6,
        ),
        eval=EvalArgs(interval=100, max_new_tokens=5, max_iters=2),
    )


if __name__ == "__main__":
    main()
