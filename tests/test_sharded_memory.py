"""Test of a model that trains on small cards only when it is sharded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A GPT-2-sized transformer: 12 layers of width 768 and 50257 tokens, 124 million parameters, on two devices.
_GPT2 = """
import sys, warnings
import torch
from lightning.fabric import Fabric
from torch import nn

warnings.simplefilter("ignore")
strategy = sys.argv[1]
if strategy == "hpu_fsdp":
    from hpu_fsdp import FabricHPUFSDPStrategy
    strategy = FabricHPUFSDPStrategy(auto_wrap_policy={nn.TransformerEncoderLayer, nn.Embedding})
fabric = Fabric(accelerator="hpu", devices=2, strategy=strategy)
fabric.launch()


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50257, 768)
        layer = lambda: nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
        self.layers = nn.Sequential(*(layer() for _ in range(12)))
        self.head = nn.Linear(768, 2)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens)))


model = GPT2()
model = fabric.setup_module(model)
optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False))
tokens = torch.randint(50257, (1, 16), device="hpu")
for _ in range(2):
    optimizer.zero_grad()
    fabric.backward(model(tokens).pow(2).mean())
    optimizer.step()
print("trained", sum(p.numel() for p in model.parameters()), torch.hpu.max_memory_allocated())
"""


@pytest.mark.slow
def test_model_that_does_not_fit_trains_with_fsdp(tmp_path: Path) -> None:
    """16 bytes per parameter are 2.0 GB: more than a card of 1.7 GiB has, and half of that on each of two."""
    script = tmp_path / "gpt2.py"
    script.write_text(_GPT2, encoding="utf-8")
    environment = os.environ | {
        "HPU_SIM_MEMORY": "1.7GiB",
        "HPU_SIM_RUNTIME_DIR": str(tmp_path / "cards"),
        "OMP_NUM_THREADS": "1",
        "PT_HPU_LAZY_MODE": "0",
    }
    hpu_sim = str(Path(sys.executable).with_name("hpu-sim"))
    done = {
        strategy: subprocess.run(
            [hpu_sim, "run", "--devices", "2", str(script), strategy],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for strategy in ("hpu_ddp", "hpu_fsdp")
    }

    assert done["hpu_ddp"].returncode != 0
    assert "HPU out of memory" in done["hpu_ddp"].stderr
    assert done["hpu_fsdp"].returncode == 0, done["hpu_fsdp"].stderr
    assert "trained" in done["hpu_fsdp"].stdout
