"""LoRA adapters of PEFT on Llama, with transformers' Trainer or with Lightning (`lightning`)."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers import Trainer as TransformersTrainer

config = LlamaConfig(num_hidden_layers=32, torch_dtype=torch.bfloat16)
model = LlamaForCausalLM(config).to(torch.bfloat16)
adapters = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(model, adapters)
model.print_trainable_parameters()
tokens = torch.randint(0, config.vocab_size, (512, 512))
data = [{"input_ids": each, "labels": each} for each in tokens]


class Tuned(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW([each for each in self.parameters() if each.requires_grad], lr=1e-4)


if "lightning" in sys.argv:
    trainer = Trainer(accelerator="hpu", devices=8, strategy="ddp", precision="bf16-true", max_steps=10)
    trainer.fit(Tuned(), DataLoader(data, batch_size=2))
else:
    arguments = TrainingArguments("out", max_steps=10, per_device_train_batch_size=2, bf16=True, report_to=[])
    TransformersTrainer(model=model, args=arguments, train_dataset=data).train()
