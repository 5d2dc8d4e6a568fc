"""Lightning's demonstration transformer with Fabric; options: `accumulate`, `16-mixed`."""

import sys

import torch
from lightning.fabric import Fabric
from lightning.pytorch.demos import Transformer
from torch.utils.data import DataLoader, TensorDataset

options = sys.argv[1:]
fabric = Fabric(
    accelerator="hpu", devices=8, strategy="ddp", precision="16-mixed" if "16-mixed" in options else "bf16-mixed"
)
fabric.launch()
fabric.seed_everything(1)
with fabric.init_module():
    model = Transformer(vocab_size=30_000, ninp=512, nhead=8, nhid=2048, nlayers=6)
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
data = DataLoader(TensorDataset(torch.randint(0, 30_000, (1024, 129))), batch_size=8)
data = fabric.setup_dataloaders(data)
micro_batches = 4 if "accumulate" in options else 1
for _ in range(10):
    for index, (tokens,) in enumerate(data):
        is_last = (index + 1) % micro_batches == 0
        with fabric.no_backward_sync(model, enabled=not is_last):
            output = model(tokens[:, :-1], tokens[:, 1:])
            loss = torch.nn.functional.nll_loss(output, tokens[:, 1:].reshape(-1))
            fabric.backward(loss / micro_batches)
        if is_last:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
        if index % 10 == 0:
            fabric.print(f"loss {loss.item():.3f}")
        fabric.log("loss", loss)
