"""Asynchronous saves of checkpoints that all ranks write together: training continues while a thread writes files."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpu_core import atomic_dir


class AsyncSaves:
    """Asynchronous saves of a strategy, one at a time; every rank must call the same methods."""

    def __init__(self) -> None:
        # Done on rank 0 when the checkpoint is in its place, elsewhere when all ranks have written.
        self._pending: Future[None] | None = None
        # Collectives on CPU tensors, for the thread that writes.
        self._group: Any | None = None
        self._writer: ThreadPoolExecutor | None = None

    def finish(self) -> bool:
        """Wait until the last save is complete, and return whether there was one.

        Raises:
            Exception: The save failed, and the previous checkpoint is unchanged.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        pending.result()
        return True

    def write(self, write: Callable[[Any], None], partial: Path, path: Path) -> None:
        """Write a checkpoint on another thread, and replace the one at `path` once all ranks have written theirs.

        Args:
            write: Function that writes this rank's files to `partial`, called with a process group for CPU tensors.
            partial: Path that `atomic_dir.prepare` has returned for `path`.
            path: The checkpoint.
        """
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "hpu-save")
        self._pending = self._writer.submit(
            _write_and_commit, write, self._group, partial, path, is_first=dist.get_rank() == 0
        )

    def call_after(self, function: Callable[[], object]) -> None:
        """Call a function once the last save is complete, now if it is, and never if it fails."""

        def call(saved: "Future[None]") -> None:
            if saved.exception() is None:
                function()

        if self._pending is None:
            function()
        else:
            self._pending.add_done_callback(call)

    def close(self) -> None:
        """End the thread."""
        if self._writer is not None:
            self._writer.shutdown()
        self._writer = self._group = None


def _write_and_commit(write: Callable[[Any], None], group: Any, partial: Path, path: Path, *, is_first: bool) -> None:
    """Write this rank's files; on rank 0, move the checkpoint to its place when all ranks have written.

    Raises:
        RuntimeError: Another rank has failed.
    """
    failed = torch.ones(1)
    try:
        write(group)
        failed.zero_()
    finally:
        # Also after an error, so that no rank waits for this one.
        dist.all_reduce(failed, group=group)
    if failed:
        raise RuntimeError(f"another rank could not write its part of {str(path)!r}; see its log")
    if is_first:
        atomic_dir.commit(partial, path)
