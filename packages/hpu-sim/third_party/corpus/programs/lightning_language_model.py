"""A language model built in `configure_model`, with tied embeddings if `tied` is given."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, WIDTH, LAYERS = 32_000, 1024, 12


class LanguageModel(LightningModule):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.tied = tied
        self.encoder = None

    def configure_model(self):
        if self.encoder is not None:
            return
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        # Not nn.TransformerEncoder: it copies a layer, whose parameters DeepSpeed has divided among the cards.
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, norm_first=True) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if self.tied:
            self.head.weight = self.embedding.weight

    def training_step(self, batch, batch_idx):
        (tokens,) = batch
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=self.device)
        hidden = self.embedding(tokens[:, :-1])
        for layer in self.encoder:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        loss = nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


options = sys.argv[1:]
strategy = next((each for each in options if each != "tied"), "ddp")
trainer = Trainer(accelerator="hpu", devices=8, num_nodes=8, strategy=strategy, precision="bf16-mixed", max_steps=100)
data = TensorDataset(torch.randint(0, VOCABULARY, (4096, 513)))
trainer.fit(LanguageModel("tied" in options), DataLoader(data, batch_size=8))
