"""Train two ranks on two simulated cards, through Ray Train or without it; each rank writes FOLDER/rank-N.json.

python train.py plain FOLDER hpu_ddp
python train.py ray FOLDER RayHPUDDPStrategy [kill|hang]
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4
HANG_TIMEOUT = timedelta(seconds=30)


class Model(LightningModule):
    """Two layers, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss, logged for Ray."""
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer with state."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


class KillOnce(Callback):
    """Kill rank 1 in its third epoch, unless a file says that it was killed already."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Kill this process."""
        if trainer.current_epoch == 2 and batch_idx == 1 and trainer.global_rank == 1 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Hang(Callback):
    """Keep rank 1 in its third epoch for ever."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Wait for what never happens."""
        if trainer.current_epoch == 2 and batch_idx == 1 and trainer.global_rank == 1:
            threading.Event().wait()


def data() -> DataLoader[tuple[Tensor, ...]]:
    """Return the same data on every rank."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(32, 8, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4)


def fit(folder: Path, strategy: Any, callbacks: list[Callback], checkpoint: Path | None = None) -> None:
    """Train, and write what to compare."""
    torch.manual_seed(3)
    trainer = Trainer(
        accelerator="hpu",
        devices="auto",
        strategy=strategy,
        max_epochs=EPOCHS,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    if type(strategy).__name__.startswith("Ray"):
        from hpu_ray import prepare_trainer

        trainer = prepare_trainer(trainer)
    model = Model()
    trainer.fit(model, data(), ckpt_path=checkpoint, weights_only=False)
    state = {name: weight.cpu() for name, weight in trainer.strategy.lightning_module_state_dict().items()}
    result = {
        "rank": trainer.global_rank,
        "world_size": trainer.world_size,
        "module": os.environ.get("HABANA_VISIBLE_MODULES"),
        "lazy": os.environ.get("PT_HPU_LAZY_MODE"),
        "resumed": checkpoint is not None,
        "loss": float(trainer.callback_metrics["loss"]),
        "weights": hashlib.sha256(b"".join(w.numpy().tobytes() for w in state.values())).hexdigest(),
    }
    (folder / f"rank-{trainer.global_rank}.json").write_text(json.dumps(result))


def train_in_worker(config: dict[str, Any]) -> None:
    """Train in a worker of Ray, from its last checkpoint if there is one."""
    import ray.train
    from ray.train.lightning import RayTrainReportCallback

    import hpu_ray

    folder = Path(config["folder"])
    callbacks: list[Callback] = [RayTrainReportCallback()]
    if config["fault"] == "kill":
        callbacks.append(KillOnce(folder / "killed"))
    if config["fault"] == "hang":
        callbacks.append(Hang())
    options = {"timeout": HANG_TIMEOUT} if config["fault"] == "hang" else {}
    strategy = getattr(hpu_ray, config["strategy"])(**options)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        fit(folder, strategy, callbacks)
    else:
        with checkpoint.as_directory() as saved:
            fit(folder, strategy, callbacks, Path(saved) / RayTrainReportCallback.CHECKPOINT_NAME)


def train_with_ray(folder: Path, strategy: str, fault: str | None = None) -> None:
    """Train in a Ray cluster on this machine."""
    import ray
    from ray.train import FailureConfig, RunConfig
    from ray.train.torch import TorchTrainer

    from hpu_ray import HPUTorchConfig, scaling_config, worker_runtime_env

    ray.init(num_cpus=2, include_dashboard=False)
    trainer = TorchTrainer(
        train_in_worker,
        train_loop_config={"folder": str(folder), "fault": fault, "strategy": strategy},
        scaling_config=scaling_config(2, cpus_per_worker=0.5),
        torch_config=HPUTorchConfig(),
        run_config=RunConfig(
            name="job",
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=int(fault == "kill")),
            worker_runtime_env=worker_runtime_env(lazy_mode=False),
        ),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        fit(Path(sys.argv[2]), sys.argv[3], [])
    else:
        train_with_ray(Path(sys.argv[2]), *sys.argv[3:])
