"""Warm-up, monitor and torch.compile in eager mode."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_bucketing import HPUGraphs, HPUWarmup, RecompilationMonitor
from hpu_bucketing._lightning import Callback
from hpu_core import HPUAccelerator, SingleHPUStrategy

from ..modules import Embeddings, loader, trainer  # noqa: TID252 - pytest gives tests no absolute name


class Compile(Callback):
    """Callback that compiles the model's forward, as hpu-compile's does."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        pl_module.forward = torch.compile(pl_module.forward, backend="hpu_backend", dynamic=False)


def _fit(folder: Path, *callbacks: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    model = Embeddings()
    device = {"accelerator": HPUAccelerator(), "strategy": SingleHPUStrategy(), "max_epochs": 1}
    trainer(folder, callbacks=list(callbacks), **{**device, **options}).fit(model, loader(), loader(shuffle=False))
    return model


def test_eager_operators_do_not_compile(tmp_path: Path) -> None:
    """Without torch.compile there is nothing to warm up, and nothing to report."""
    warmup, monitor = HPUWarmup(), RecompilationMonitor("error", grace_steps=0)

    _fit(tmp_path, warmup, monitor, limit_val_batches=0)

    assert {record.compilations for record in warmup.records} == {0}


# torch's own warning inside of dynamo.
@pytest.mark.filterwarnings("ignore")
def test_nothing_compiles_after_warm_up(tmp_path: Path) -> None:
    """All buckets are within torch.compile's limits."""
    warmup, monitor = HPUWarmup(), RecompilationMonitor("error", grace_steps=0)

    _fit(tmp_path, Compile(), warmup, monitor, limit_val_batches=0)

    assert [bool(record.compilations) for record in warmup.records] == [True, True, True]


def test_graphs_need_lazy_mode(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the bridge is in eager mode: set PT_HPU_LAZY_MODE=1, or use"):
        _fit(tmp_path, HPUGraphs())
