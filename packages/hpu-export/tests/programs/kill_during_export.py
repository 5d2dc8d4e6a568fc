"""Kill exports at random moments; print how each ended as JSON.

python kill_during_export.py FOLDER RUNS
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from hpu_export import export_checkpoint

# Tensors of 4 MiB.
_TENSORS = 24


def _check(out: Path, values: set[float]) -> str:
    """Return what is at the target, which must be nothing or a whole export with one of the values."""
    if not out.exists():
        return "nothing"
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert (out / "README.md").is_file()
    assert len(index) == _TENSORS
    found: set[float] = set()
    for file in set(index.values()):
        for tensor in load_file(out / file).values():
            assert tensor.numel() == 2**20
            found |= {float(tensor.min()), float(tensor.max())}
    assert len(found) == 1, found
    assert found <= values, found
    return "whole"


def main(folder: Path, runs: int) -> None:
    """Kill each export once, every second one while it replaces an earlier export."""
    torch.set_num_threads(1)
    moments = random.Random(7)  # noqa: S311 - no secret.
    results: list[str] = []
    for value in (1.0, 2.0):
        torch.save({str(i): torch.full((2**20,), value) for i in range(_TENSORS)}, folder / f"{value}.ckpt")
    begin = time.perf_counter()
    export_checkpoint(folder / "1.0.ckpt", folder / "old", max_shard_size="20MB")
    duration = time.perf_counter() - begin
    for run in range(runs):
        out = folder / "old" if run % 2 else folder / f"new-{run}"
        child = os.fork()
        if not child:
            export_checkpoint(folder / "2.0.ckpt", out, max_shard_size="20MB", overwrite=True)
            os._exit(0)
        time.sleep(moments.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found = _check(out, {1.0, 2.0} if run % 2 else {2.0})
        assert run % 2 == 0 or found == "whole"
        results.append(f"{'killed' if killed else 'ended'}, {found}")
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
