"""A model of litgpt by the name of its configuration: pretraining with Lightning, or LoRA with Fabric (`lora`)."""

import sys

import torch
import torchvision_operators  # noqa: F401 - see there
from lightning import Fabric, LightningModule, Trainer
from litgpt import GPT, lora
from litgpt.utils import chunked_cross_entropy
from torch.utils.data import DataLoader, TensorDataset

name = sys.argv[1]
data = DataLoader(TensorDataset(torch.randint(0, 30_000, (64, 1025))), batch_size=1)


class Pretrained(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = GPT.from_name(name)

    def training_step(self, batch, batch_idx):
        (tokens,) = batch
        return chunked_cross_entropy(self.model(tokens[:, :-1]), tokens[:, 1:].contiguous())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=4e-4, betas=(0.9, 0.95))


if "lora" not in sys.argv:
    Trainer(accelerator="hpu", devices=8, strategy="ddp", precision="bf16-true", max_steps=10).fit(Pretrained(), data)
    raise SystemExit
fabric = Fabric(accelerator="hpu", devices=1, precision="bf16-true")
fabric.launch()
config = lora.Config.from_name(name, lora_r=8, lora_query=True, lora_value=True)
with fabric.init_module(empty_init=True):
    model = lora.GPT(config)
lora.mark_only_lora_as_trainable(model)
model = fabric.setup_module(model)
optimizer = fabric.setup_optimizers(torch.optim.AdamW([each for each in model.parameters() if each.requires_grad]))
for (tokens,) in fabric.setup_dataloaders(data):
    scores = model(tokens[:, :-1], lm_head_chunk_size=128)
    fabric.backward(chunked_cross_entropy(scores, tokens[:, 1:].contiguous(), chunk_size=0))
    optimizer.step()
    optimizer.zero_grad()
