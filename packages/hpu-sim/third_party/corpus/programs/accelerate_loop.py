"""A loop with accelerate, as in its examples: BERT, or another model of transformers."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
model = BertForSequenceClassification(BertConfig())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
data = DataLoader(TensorDataset(torch.randint(0, 30_000, (512, 128)), torch.randint(0, 2, (512,))), batch_size=16)
schedule = get_linear_schedule_with_warmup(optimizer, 10, 100)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
for _ in range(3):
    model.train()
    for tokens, labels in data:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    accelerator.print(f"loss {accelerator.gather(loss).mean().item():.3f}")
