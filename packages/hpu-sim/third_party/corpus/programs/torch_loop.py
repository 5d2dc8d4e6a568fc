"""A loop in plain torch without any mark, with GradScaler and DistributedDataParallel if `ddp` is given."""

import os
import sys

import habana_frameworks.torch.core as htcore
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("hpu")
model = nn.Sequential(
    nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
)
model = model.to(device)
if "ddp" in sys.argv:
    dist.init_process_group("hccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
scaler = torch.amp.GradScaler("hpu")
data = DataLoader(TensorDataset(torch.rand(256, 3, 64, 64), torch.randint(0, 10, (256,))), batch_size=32)
for epoch in range(3):
    total = 0.0
    for batch in data:
        images, labels = (each.to(device, non_blocking=True) for each in batch)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("hpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        if not torch.isfinite(loss):
            raise SystemExit("the loss is not finite")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        htcore.mark_step()
        total += loss.item()
    scheduler.step()
    print(f"epoch {epoch}: {total / len(data):.3f}")
