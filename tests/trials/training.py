"""Training of a small model on simulated cards, in which one rank may fail; the other programs of this folder start it.

    python tests/trials/training.py --strategy ddp --fault killed --rank 1 --phase train --call 5

With `--checkpoints` it resumes from the last checkpoint in the folder. Each rank of a Trainer writes rank-N.json at the
end, and each start of rank 0 is a line of starts.txt. FAULT_FILE gets the time of the failure, on the system's
monotonic clock.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import lightning.fabric
import lightning.pytorch as pl
import psutil
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpu_core import HPUAccelerator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Variables that a strategy sets for the bridge and for the ranks that it launches.
_VARIABLES = {"HLS_MODULE_ID", "ID", "HPU_LAUNCHER_PID"}


def note_time() -> None:
    """Write the time to FAULT_FILE."""
    if "FAULT_FILE" in os.environ:
        Path(os.environ["FAULT_FILE"]).write_text(str(time.monotonic()), encoding="ascii")


def raise_error() -> NoReturn:
    raise ValueError("an error of the user's")


def hang() -> NoReturn:
    while True:
        pass


def cut_off() -> None:
    """Cut the cable of this machine, on which all is killed later, as its system ends it after about 15 minutes."""
    subprocess.run(shlex.split(os.environ["CUT"]), check=True)
    subprocess.Popen(["sh", "-c", "sleep 30; kill -9 0"])


def raise_in_monitor() -> None:
    """Raise an error in the threads that watch the other ranks, and wait for their end."""
    for thread in threading.enumerate():
        if thread.name.startswith("hpu-") and thread.ident is not None:
            error = ctypes.py_object(ZeroDivisionError)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), error)
            thread.join()


def read(how: str, loss: torch.Tensor) -> None:
    """Hold the host until the device has finished, in a way of which some keep the GIL on a card."""
    hpu: Any = torch.hpu  # type: ignore[attr-defined] # The bridge adds it.
    if how == "item":
        loss.item()
    elif how == "synchronize":
        hpu.synchronize()
    elif how == "event":
        event = hpu.Event()
        event.record()
        event.synchronize()
    elif how == "all-reduce":
        torch.distributed.all_reduce(loss.detach().clone())


_FAILURES: dict[str, Callable[[], object]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminated": lambda: os.kill(os.getpid(), signal.SIGTERM),
    # As a terminal does.
    "interrupted": lambda: os.killpg(0, signal.SIGINT),
    "requeued": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raised": raise_error,
    "hung": hang,
    "cut off": cut_off,
    "monitor error": raise_in_monitor,
}
# The hook of each phase; that of saving precedes the writing of a checkpoint.
_HOOKS = {
    "train": "on_train_batch_start",
    "validate": "on_validation_batch_start",
    "save": "on_save_checkpoint",
}


class Fault(pl.Callback):
    """Failure of a rank after a hook of the Trainer or at a place in Fabric's loop.

    Args:
        options: What fails, on which rank or on all, in which phase, and after which call of the phase's hook.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._call = options.call
        if options.fault in {"left", *_FAILURES}:
            setattr(self, _HOOKS[options.phase], self._reach)

    def _reach(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        self.reach(self._options.phase, trainer.global_rank, trainer)

    def reach(self, phase: str, rank: int, trainer: pl.Trainer | None = None) -> bool:
        """Fail, if this is the call for it.

        Returns:
            Whether the rank leaves the others.
        """
        if phase != self._options.phase:
            return False
        self._call -= 1
        if self._call != -1 or self._options.rank not in {rank, -1}:
            return False
        self._fail(trainer)
        return bool(self._options.fault == "left")

    def _fail(self, trainer: pl.Trainer | None) -> None:
        fault, once = self._options.fault, self._options.once
        if fault not in {"left", *_FAILURES} or (once is not None and once.exists()):
            return
        if once is not None:
            once.touch()
        note_time()
        if fault != "left":
            _FAILURES[fault]()
        elif trainer is not None:
            trainer.fit_loop.epoch_loop.max_steps = trainer.global_step + 1


class Until(pl.Callback):
    """Ends training with the epoch in which a file exists, and notes each start and each validation."""

    def __init__(self, end: Path | None, folder: Path) -> None:
        self._end = end
        self._folder = folder

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self._note(trainer, "starts.txt", trainer.world_size, trainer.current_epoch)

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._note(trainer, "losses.txt", trainer.global_step, float(trainer.callback_metrics["val"]))

    def _note(self, trainer: pl.Trainer, name: str, *values: float) -> None:
        if trainer.is_global_zero:
            with (self._folder / name).open("a", encoding="ascii") as file:
                file.write(f"{' '.join(map(str, values))}\n")

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._end is not None:
            trainer.should_stop = trainer.strategy.reduce_boolean_decision(self._end.exists(), all=False)


class Sampler(pl.Callback):
    """Appends samples of this process to rank-N.jsonl.

    Args:
        interval: Steps from one sample to the next.
        folder: Folder of the file.
    """

    def __init__(self, interval: int, folder: Path) -> None:
        self._interval = interval
        self._folder = folder

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step % self._interval:
            return
        process = psutil.Process()
        sample = {
            "step": trainer.global_step,
            "host KiB": process.memory_info().rss / 1024,
            "card KiB": torch.hpu.memory_allocated() / 1024,  # type: ignore[attr-defined] # The bridge adds it.
            "files": process.num_fds(),
            "threads": process.num_threads(),
            "weights": digest(pl_module.parameters()),
        }
        with (self._folder / f"rank-{trainer.global_rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")


class Module(pl.LightningModule):
    """Two linear layers with Adam, so that optimizer states matter."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.layers = make_layers()
        self.options = options
        self.loss: torch.Tensor | None = None
        self.first_epoch = 0

    def training_step(self, batch: Any) -> torch.Tensor:
        inputs = batch[0]
        if self.options.every:
            # The loader starts anew where an epoch is resumed.
            generator = torch.Generator().manual_seed(1000 + 2 * self.global_step + self.global_rank)
            inputs = torch.randn(inputs.shape, generator=generator).to(self.device)
        time.sleep(self.options.pause)
        self.loss = self.layers(inputs).square().mean()
        self.log("loss", self.loss)
        return self.loss

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        read(self.options.read, outputs["loss"])

    def validation_step(self, batch: Any) -> None:
        time.sleep(self.options.pause)
        self.log("val", self.layers(batch[0]).square().mean(), sync_dist=True)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.options.samples, seed=2)

    def val_dataloader(self) -> DataLoader[Any]:
        # As many for each of up to 8 ranks, but 5 and 7.
        return self._loader(48, seed=3)

    def _loader(self, samples: int, seed: int) -> DataLoader[Any]:
        data = TensorDataset(torch.randn(samples, 16, generator=torch.Generator().manual_seed(seed)))
        # Not shuffled: Lightning 2.6 resumes after an epoch with the order of the first epoch.
        sampler: DistributedSampler[Any] = DistributedSampler(
            data, self.trainer.world_size, self.global_rank, shuffle=False
        )
        return DataLoader(data, batch_size=8, sampler=sampler)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def on_train_start(self) -> None:
        self.first_epoch = self.current_epoch

    def on_fit_end(self) -> None:
        """Write the loss of the last step, without which no step was left, and a digest of this rank's weights."""
        result = {
            "loss": None if self.loss is None else float(self.loss),
            "weights": digest(self.parameters()),
            "first_epoch": self.first_epoch,
            "modules": os.environ.get("HABANA_VISIBLE_MODULES"),
        }
        (self.options.folder / f"rank-{self.global_rank}.json").write_text(json.dumps(result), encoding="utf-8")


def make_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def digest(parameters: Iterable[torch.Tensor]) -> str:
    weights = (parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for parameter in parameters)
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


def make_strategy(options: argparse.Namespace) -> Any:
    fsdp2 = {"data_parallel_size": options.devices, "tensor_parallel_size": 1}
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "ddp": ("hpu_ddp", "HPUDDPStrategy", {}),
        "fsdp": ("hpu_fsdp", "HPUFSDPStrategy", {"state_dict_type": "sharded"}),
        "fsdp_full": ("hpu_fsdp", "HPUFSDPStrategy", {"state_dict_type": "full"}),
        "fsdp2": ("hpu_fsdp", "HPUModelParallelStrategy", fsdp2),
        "fsdp2_full": ("hpu_fsdp", "HPUModelParallelStrategy", fsdp2 | {"save_distributed_checkpoint": False}),
        "deepspeed": ("hpu_deepspeed", "HPUDeepSpeedStrategy", {"stage": 2, "process_group_backend": None}),
    }
    plain, _, is_async = options.strategy.partition("-")
    module, name, arguments = kinds[plain]
    arguments |= {"async_save": True} if is_async else {}
    kind = getattr(importlib.import_module(module), name if options.api == "Trainer" else f"Fabric{name}")
    return kind(timeout=timedelta(seconds=options.timeout), **arguments)


def train_with_trainer(options: argparse.Namespace) -> None:
    folder = options.folder
    callbacks: list[pl.Callback] = [Fault(options), Until(options.until, folder)]
    if options.checkpoints:
        intervals = {"every_n_train_steps": options.every} if options.every else {"save_on_train_epoch_end": True}
        if options.save_on_exception:
            intervals["save_on_exception"] = True
        callbacks.append(ModelCheckpoint(folder / "checkpoints", save_last=True, **intervals))
    if options.sample_every:
        callbacks.append(Sampler(options.sample_every, folder))
    trainer = pl.Trainer(
        accelerator=HPUAccelerator(),
        strategy=make_strategy(options),
        devices=options.devices,
        num_nodes=options.num_nodes,
        max_epochs=options.epochs,
        max_steps=options.steps,
        limit_val_batches=1.0 if options.checkpoints else 0,
        val_check_interval=options.every,
        check_val_every_n_epoch=None if options.every else 1,
        # What a job of another size resumes from is validated first.
        num_sanity_val_steps=-1 if options.checkpoints and options.until else 0,
        use_distributed_sampler=False,
        logger=CSVLogger(folder / "logs") if options.every else False,
        callbacks=callbacks,
        default_root_dir=folder,
        enable_checkpointing=options.checkpoints,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = folder / "checkpoints" / "last.ckpt"
    # The link of a checkpoint that is not there is an error, which the training must report.
    trainer.fit(Module(options), ckpt_path=last if options.checkpoints and os.path.lexists(last) else None)


def train_with_fabric(options: argparse.Namespace) -> None:
    fabric = lightning.fabric.Fabric(
        accelerator=HPUAccelerator(),
        strategy=make_strategy(options),
        devices=options.devices,
        num_nodes=options.num_nodes,
    )
    fabric.launch()
    layers = make_layers()
    module, optimizer = fabric.setup(layers, torch.optim.Adam(layers.parameters(), lr=0.01))
    state = {"model": module, "optimizer": optimizer, "step": 0}
    try:
        run_steps(fabric, state, options)
    except (KeyboardInterrupt, ValueError):
        # What many programs do, without a thought of the other ranks.
        if options.save_on_exception:
            fabric.save(options.folder / "interrupted.ckpt", state)
        raise


def run_steps(fabric: lightning.fabric.Fabric, state: dict[str, Any], options: argparse.Namespace) -> None:
    """Train with Fabric; with checkpoints from the last one, and validate and save every few steps."""
    module, optimizer, fault = state["model"], state["optimizer"], Fault(options)
    last = options.folder / "checkpoints" / "last.ckpt"
    loss = None
    if last.exists():
        fabric.load(last, state)
    while state["step"] < options.steps:
        if options.checkpoints and fabric.strategy.should_stop():  # type: ignore[attr-defined] # Ours has it.
            return
        if fault.reach("train", fabric.global_rank):
            return
        loss = module(make_batch(fabric, state["step"])).square().mean()
        time.sleep(options.pause)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        read(options.read, loss)
        state["step"] += 1
        if options.checkpoints and state["step"] % options.every == 0:
            for index in range(2):
                fault.reach("validate", fabric.global_rank)
                with torch.no_grad():
                    fabric.all_reduce(module(make_batch(fabric, -1 - index)).square().mean())
            fault.reach("save", fabric.global_rank)
            fabric.save(last, state)
    result = {"loss": None if loss is None else float(loss), "weights": digest(module.parameters())}
    (options.folder / f"rank-{fabric.global_rank}.json").write_text(json.dumps(result), encoding="utf-8")


def make_batch(fabric: lightning.fabric.Fabric, step: int) -> torch.Tensor:
    """Return the batch of a step, another one on each rank."""
    generator = torch.Generator().manual_seed(1000 + 2 * step + fabric.global_rank)
    return torch.randn(8, 16, generator=generator).to(fabric.device)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="folder of checkpoints, samples and results")
    parser.add_argument(
        "--strategy", choices=["ddp", "deepspeed", "fsdp", "deepspeed-async", "fsdp-async"], default="ddp"
    )
    parser.add_argument("--api", choices=["Trainer", "Fabric"], default="Trainer")
    parser.add_argument("--devices", type=int, default=2)
    # torchrun says with how many machines it has started the ranks.
    parser.add_argument("--num-nodes", type=int, default=int(os.environ.get("GROUP_WORLD_SIZE", "1")))
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a silent rank counts as lost")
    parser.add_argument("--epochs", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0, help="seconds that a step takes longer")
    parser.add_argument("--checkpoints", action="store_true", help="validate and save after each epoch; resume")
    parser.add_argument("--every", type=int, help="steps from one validation and checkpoint to the next, with a log")
    parser.add_argument("--sample-every", type=int, help="steps from one sample of the process to the next")
    parser.add_argument("--until", type=Path, help="end training with the epoch in which this file exists")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--save-on-exception", action="store_true", help="save after an error, too")
    parser.add_argument("--read", choices=["none", "item", "synchronize", "event", "all-reduce"], default="none")
    parser.add_argument("--rank", type=int, default=1, help="the rank that fails; -1 for all")
    parser.add_argument("--phase", choices=_HOOKS, default="train")
    parser.add_argument("--call", type=int, default=5, help="the call of the phase's hook at which it fails, from 0")
    parser.add_argument("--once", type=Path, help="file that is made at the failure, and without which none comes")
    return parser.parse_args()


def main() -> None:
    """Train, and print what is left of the strategy afterwards."""
    options = parse_options()
    # The bridge sets its own at its import.
    before = set(os.environ)
    rank = int(os.environ.get("NODE_RANK", "0")) * options.devices + int(os.environ.get("LOCAL_RANK", "0"))
    if rank == 0 and options.fault == "never came":
        note_time()
    # A shell starts programs in the background with it ignored. Ray starts them in a thread, which cannot change it.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pl.seed_everything(1)
    if options.api == "Fabric":
        # Fabric has no end of training at which a strategy could stop.
        train_with_fabric(options)
    else:
        try:
            train_with_trainer(options)
        finally:
            threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("hpu-")]
            left = set(os.environ) & _VARIABLES - before
            if threads or left:
                os.write(1, f"LEFT {threads} {left}\n".encode())
    os.write(1, b"FINISHED\n")


if __name__ == "__main__":
    main()
