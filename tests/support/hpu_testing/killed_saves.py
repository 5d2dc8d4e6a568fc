"""Trainings in which the kernel ends one rank while it writes its part of a checkpoint, and those that resume from it.

`kill_saves` runs this module as a program, whose ranks are forked from a process that has imported everything.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpu_core import frameworks
from hpu_testing.kills import end_beyond
from hpu_testing.processes import Program, free_port, machine_env
from hpu_testing.rank_pool import FunctionRef

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = 2
# A save comes after each step. One rank is ended in that of the second or the third.
STEPS = 4
KILLS = tuple(itertools.product((2, 3), range(RANKS)))


def kill_saves(train: Callable[..., None], folder: Path, kills: int, *arguments: str) -> None:
    """End a rank in the save of a training, as often as asked, and check what the others and the next start find.

    Args:
        train: Function at module level that trains for STEPS steps with the callback, `ckpt_path` and `arguments` that
            it gets, one batch an epoch.
        folder: An empty folder.
        kills: How often.
        *arguments: Further arguments of `train`.
    """
    ref = FunctionRef.from_callable(train)
    module = ["-m", "hpu_testing.killed_saves"]
    command = [sys.executable, *module, ref.root, ref.module, ref.name, str(folder), str(kills), *arguments]
    environment = machine_env(RANKS, folder / "cards", PT_HPU_LAZY_MODE="0")
    with Program(command, environment, folder, preloaded=True) as program:
        done = program.wait(1500)
    log = done.output[-4000:]
    assert done.code == 0, log
    assert not done.leaked_pids
    whole, *results = json.loads(done.output.splitlines()[-1])
    assert len(whole["losses"]) == STEPS
    assert len(results) == kills
    # Nobody here has launched the ranks, so the end of rank 0 alone is seen, whose store closes.
    assert len(re.findall(r"rank 0 \(pid \d+ on \S+\) exited", done.output)) >= (kills + 1) // RANKS, log
    for (step, rank), result in zip(itertools.cycle(KILLS), results, strict=False):
        assert result["codes"][rank] == -signal.SIGXFSZ, (result, log)
        assert result["codes"][1 - rank] not in {0, -signal.SIGXFSZ}, (result, log)
        # The last complete checkpoint is the one of the step before.
        assert result["losses"] == pytest.approx(whole["losses"][step - 1 :], abs=1e-6), (result, log)
        assert result["others"] == ["tokenizer.json"], result


class _Saves(frameworks.current().pytorch("callbacks").Callback):  # type: ignore[misc] # The class depends on the framework.
    """Callback that saves after each step, and notes the losses.

    Args:
        path: The checkpoint.
        kill: Step and rank of the kill, and the part of the largest file after which it comes.
    """

    def __init__(self, path: Path, kill: tuple[int, int, float] | None) -> None:
        self.path, self.kill = path, kill
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        """Save a checkpoint."""
        self.losses.append(float(trainer.strategy.reduce(outputs["loss"].detach().clone())))
        step, rank, part = self.kill or (0, 0, 0.0)
        if trainer.global_step == step:
            # The last asynchronous save is complete.
            trainer.strategy.finish_save()
            # Another rank may be still in the last save, or already in the next one, and move the files.
            trainer.strategy.barrier()
            size = max(file.stat().st_size for file in self.path.rglob("*"))
            trainer.strategy.barrier()
            if trainer.global_rank == rank:
                end_beyond(int(part * size))
        trainer.save_checkpoint(self.path)


def _run(train: Callable[..., None], path: Path, kill: tuple[int, int, float] | None, *arguments: str) -> list[int]:
    """Train on forked ranks, which resume if there is a checkpoint; return their exit codes."""
    port, ckpt_path = free_port(), path if (path / ".hpu-core-save").exists() else None
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in ranks.items()}, MASTER_ADDR="127.0.0.1")
            try:
                saves = _Saves(path, kill)
                train(saves, ckpt_path, *arguments)
                path.with_suffix(".json").write_text(json.dumps(saves.losses))
            except BaseException:  # noqa: BLE001 - the process must not run the rest of the program.
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main() -> None:
    """Run the trainings, and print a JSON list of what they have found."""
    root, module, name, folder, kills, *arguments = sys.argv[1:]
    sys.path.insert(0, root)
    train = getattr(importlib.import_module(module), name)
    results: list[dict[str, Any]] = []
    for run in range(int(kills) + 1):
        path = Path(folder, f"{run}.ckpt")
        path.mkdir()
        (path / "tokenizer.json").touch()
        step, rank = KILLS[(run - 1) % len(KILLS)]
        codes = _run(train, path, (step, rank, run / (int(kills) + 1)) if run else None, *arguments)
        if run:
            _run(train, path, None, *arguments)
        losses = path.with_suffix(".json")
        others = [file.name for file in path.iterdir() if file.name.startswith("token") or file.suffix == ".partial"]
        results.append({"codes": codes, "losses": json.loads(losses.read_text()), "others": others})
    sys.stdout.write(f"\n{json.dumps(results)}\n")


if __name__ == "__main__":
    main()
