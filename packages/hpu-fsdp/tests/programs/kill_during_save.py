"""Trainings on two devices in which one rank is killed while it writes its shard of a checkpoint.

The ranks of each training are forked from this process, which has imported everything and opened no device. They save
after each step. Arguments: folder of the checkpoints, number of trainings, "sync" or "async", "fsdp" or "fsdp2". Prints
a JSON list.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.modules import UNITS, ImageClassifier, dataset, make_trainer, train
from torch.distributed.checkpoint import filesystem

from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_testing import free_port

RANKS = 2
# Save, rank and number of tensors that it has written, at which it is killed.
KILLS = tuple(itertools.product((2, 3), range(RANKS), range(5)))


class SavingClassifier(ImageClassifier):
    """Classifier that saves after each step and kills one rank in the middle of one save; FSDP2 shards it."""

    def __init__(self, path: str, kill: tuple[int, int, int]) -> None:
        super().__init__()
        self.path = path
        self.kill_step, self.kill_rank, self.items = kill

    def configure_model(self) -> None:
        """Shard the layers, with FSDP2."""
        if isinstance(self.trainer.strategy, HPUModelParallelStrategy):
            from torch.distributed.fsdp import fully_shard

            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def on_train_batch_end(self, *args: Any) -> None:
        """Save a checkpoint."""
        if self.trainer.global_step == self.kill_step:
            # The last asynchronous save is complete.
            self.trainer.strategy.finish_save()
            if self.global_rank == self.kill_rank:
                _kill_after(self.items)
        self.trainer.save_checkpoint(self.path)


def _kill_after(items: int) -> None:
    """Kill this process once it has written some tensors, and a part of the next one."""
    write, written = filesystem._write_item, itertools.count()

    def write_or_die(*args: Any, **kwargs: Any) -> Any:
        if next(written) < items:
            return write(*args, **kwargs)
        stream = next(value for value in (*args, *kwargs.values()) if hasattr(value, "write"))
        stream.write(b"PK\x03\x04")
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    filesystem._write_item = write_or_die


def _train(path: str, kill: tuple[int, int, int], kind: str, name: str) -> None:
    strategy: Any = HPUModelParallelStrategy(RANKS, 1, async_save=kind == "async")
    if name == "fsdp":
        strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", async_save=kind == "async")
    train(SavingClassifier(path, kill), make_trainer(strategy=strategy, max_steps=kill[0] + 1))


def _fork_rank(rank: int, port: int, path: str, kill: tuple[int, int, int], *kinds: str) -> int:
    """Fork a rank that trains, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "NODE_RANK": "0",
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
    }
    try:
        _train(path, kill, *kinds)
    except BaseException:  # noqa: BLE001 - the process must not run the rest of the program.
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _end(pid: int) -> int:
    """Wait until a rank exits, and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Run the trainings."""
    folder, runs, *kinds = sys.argv[1:]
    results = []
    dataset()
    for run, kill in zip(range(int(runs)), KILLS, strict=False):
        path = f"{folder}/{run}.ckpt"
        Path(path).mkdir()
        Path(path, "tokenizer.json").touch()
        port = free_port()
        codes = [_end(pid) for pid in [_fork_rank(rank, port, path, kill, *kinds) for rank in range(RANKS)]]
        results.append({"path": path, "kill": kill, "codes": codes})
    sys.stdout.write(f"{json.dumps(results)}\n")


if __name__ == "__main__":
    main()
