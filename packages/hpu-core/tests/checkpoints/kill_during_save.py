"""Program that saves checkpoints until it is killed: `python kill_during_save.py PATH`.

For each line on stdin it forks a child, which loads the checkpoint at PATH and replaces it by newer ones without end.
The child prints its process id and the number of profiler events (calls and returns) of one save, and then one byte per
event. When the child has exited, the parent prints an empty line.
"""

import os
import sys
from pathlib import Path
from types import FrameType

import torch

from hpu_core import HPUCheckpointIO

# Half a megabyte, which makes the write long enough for some kills to interrupt it.
_NUMEL = 1 << 17


def main() -> None:
    """Fork a child per line, and wait until it exits."""
    path = Path(sys.argv[1])
    # Forking with several threads is unsafe.
    torch.set_num_threads(1)
    plugin = HPUCheckpointIO()
    save(plugin, path, 0)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            save_forever(plugin, path)
        os.waitpid(child, 0)
        os.write(1, b"\n")


def save_forever(plugin: HPUCheckpointIO, path: Path) -> None:
    """Save checkpoints with increasing steps, and print a byte per profiler event."""
    events = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal events
        events += 1

    def report(frame: FrameType, event: str, argument: object) -> None:
        os.write(1, b".")

    step = plugin.load_checkpoint(path)["step"] + 1
    sys.setprofile(count)
    save(plugin, path, step)
    sys.setprofile(None)
    os.write(1, b"%d %d\n" % (os.getpid(), events))
    sys.setprofile(report)
    while True:
        step += 1
        save(plugin, path, step)


def save(plugin: HPUCheckpointIO, path: Path, step: int) -> None:
    """Save a checkpoint in which every number is `step`."""
    weights = torch.full((_NUMEL,), float(step))
    plugin.save_checkpoint({"step": step, "state_dict": {"weights": weights, "half": weights[: _NUMEL // 2]}}, path)


if __name__ == "__main__":
    main()
