"""Saves checkpoints over and over, to be killed while it does: `python killed_saver.py PATH`.

For each line on stdin it forks a child that loads the checkpoint at PATH and saves newer ones in its place without
end. On stdout, a line comes first with the child's process id and the number of the interpreter's events (calls and
returns) in one save; then one byte for each event. Once the child is dead, an empty line follows.
"""

import os
import sys
from pathlib import Path
from types import FrameType

import torch

from hpu_core import HPUCheckpointIO

# Half a megabyte: long enough to be hit while it is written, short enough to be hit anywhere else, too.
_NUMEL = 1 << 17


def main() -> None:
    """Fork a child per line, and wait for its end."""
    path = Path(sys.argv[1])
    # One thread, so that forking is safe.
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
    """Save checkpoints with rising steps, saying each event."""
    events = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal events
        events += 1

    def say(frame: FrameType, event: str, argument: object) -> None:
        os.write(1, b".")

    step = plugin.load_checkpoint(path)["step"] + 1
    sys.setprofile(count)
    save(plugin, path, step)
    sys.setprofile(None)
    os.write(1, b"%d %d\n" % (os.getpid(), events))
    sys.setprofile(say)
    while True:
        step += 1
        save(plugin, path, step)


def save(plugin: HPUCheckpointIO, path: Path, step: int) -> None:
    """Save a checkpoint whose every number is `step`."""
    weights = torch.full((_NUMEL,), float(step))
    plugin.save_checkpoint({"step": step, "state_dict": {"weights": weights, "half": weights[: _NUMEL // 2]}}, path)


if __name__ == "__main__":
    main()
