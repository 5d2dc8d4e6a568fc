"""Process groups of ranks that tests share."""

from __future__ import annotations

import torch.distributed as dist

from hpu_core.distributed import process_group


def leave_process_group() -> None:
    """Destroy the process group, and forget the rendezvous, so that the next test has its own."""
    if dist.is_initialized():
        dist.destroy_process_group()
    process_group._job = None
