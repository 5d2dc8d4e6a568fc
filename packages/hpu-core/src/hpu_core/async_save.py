"""Asynchronous saves of checkpoints that all ranks write together: training continues while a thread writes files."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hpu_core import atomic_dir

if TYPE_CHECKING:

    class _Strategy:
        """Part of Lightning's parallel strategies, the Trainer's and Fabric's, that is used here."""

        global_rank: Any

        def barrier(self, *args: Any, **kwargs: Any) -> None: ...
        def remove_checkpoint(self, filepath: Any) -> None: ...
        def teardown(self) -> None: ...

else:
    _Strategy = object


class AsyncSaveMixin(_Strategy):
    """Mixin for strategies; list it before Lightning's.

    Attributes:
        async_save: Whether to write checkpoints on another thread.
    """

    async_save = False

    # Done on rank 0 when the checkpoint is in its place, elsewhere when all ranks have written.
    _pending_save: "Future[None] | None" = None
    # Collectives on CPU tensors, for the thread that writes.
    _cpu_group: Any | None = None
    _writer: ThreadPoolExecutor | None = None

    def finish_save(self) -> None:
        """Wait until the last asynchronous save is complete; every rank must call it.

        Raises:
            Exception: The save failed, and the previous checkpoint is unchanged.
        """
        pending, self._pending_save = self._pending_save, None
        if pending is None:
            return
        pending.result()
        self.barrier()

    def write_async(self, write: Callable[[Any], None], partial: Path, path: Path) -> None:
        """Write a checkpoint on another thread, and replace the last one by it once all ranks have written theirs.

        Every rank must call it, after `finish_save`.

        Args:
            write: Function that writes this rank's files to `partial`, called with a process group for CPU tensors.
            partial: Path that `atomic_dir.prepare` has returned for `path`.
            path: The checkpoint.
        """
        if self._cpu_group is None:
            self._cpu_group = dist.new_group(backend="gloo")
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "hpu-save")
        self._pending_save = self._writer.submit(
            _write_and_commit, write, self._cpu_group, partial, path, is_first=self.global_rank == 0
        )

    def remove_checkpoint(self, filepath: Any) -> None:
        """Remove a checkpoint, after an asynchronous save that may replace it as the last good one.

        Args:
            filepath: File or folder.
        """
        if self._pending_save is None:
            super().remove_checkpoint(filepath)
            return

        def remove(saved: "Future[None]") -> None:
            if saved.exception() is None:
                super(AsyncSaveMixin, self).remove_checkpoint(filepath)

        self._pending_save.add_done_callback(remove)

    def teardown(self) -> None:
        """Finish the last asynchronous save, and tear the strategy down."""
        try:
            self.finish_save()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None
            self._cpu_group = None
            super().teardown()


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
