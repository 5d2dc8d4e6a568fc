"""Process groups of ranks that tests share."""

from __future__ import annotations

import torch.distributed as dist

from hpu_core.distributed import process_group


def leave_process_group() -> None:
    """Destroy the process group, and forget the rendezvous, so that the next test has its own.

    Let all ranks return from it before one of them joins again: it could join the store that rank 0 is about to close.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    if process_group._monitor is not None:
        process_group._monitor.close()
        # That of rank 0 would keep its store until the process ends.
        process_group._monitor.forget()
    process_group._job = process_group._monitor = None
