"""transformers' Trainer on random tokens, with a model of the given family made of its configuration."""

import sys

import torch
import transformers
from transformers import Trainer, TrainingArguments

LENGTH = 256
FAMILIES = {
    "bert": ("BertForSequenceClassification", "BertConfig", {}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "intermediate_size": 8192,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128_256,
            "tie_word_embeddings": True,
        },
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"num_hidden_layers": 8}),
    "qwen": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {
            "num_hidden_layers": 12,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
        },
    ),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {
            "num_hidden_layers": 4,
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_local_experts": 4,
            "experts_implementation": "batched_mm",
        },
    ),
}


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary: int, is_classification: bool) -> None:
        self.vocabulary, self.is_classification = vocabulary, is_classification

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = torch.randint(0, self.vocabulary, (LENGTH,))
        labels = torch.tensor(index % 2) if self.is_classification else tokens.clone()
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


model_name, config_name, sizes = FAMILIES[sys.argv[1]]
config = getattr(transformers, config_name)(**sizes)
model = getattr(transformers, model_name)(config)
options = {"bf16": True, "gradient_checkpointing": True} if sys.argv[1] in {"llama", "mistral"} else {"bf16": True}
arguments = TrainingArguments(
    "out",
    max_steps=50,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    logging_steps=10,
    save_strategy="no",
    report_to=[],
    **options,
)
data = RandomTokens(config.vocab_size, model_name.endswith("SequenceClassification"))
Trainer(model=model, args=arguments, train_dataset=data).train()
