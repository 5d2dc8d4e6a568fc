"""Replacements for what torch 2.0 lacks; this module and its call sites go with the support of torch 2.0."""

import socket
import time
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from packaging.version import Version

__all__ = ["IS_TORCH_2_0", "supports_hpu", "wait_for_listener"]

IS_TORCH_2_0: Final = Version(torch.__version__) < Version("2.1.dev0")

_CPU_GPU_BACKENDS: Final = frozenset({"gloo", "mpi", "nccl", "ucc"})
_POLL_INTERVAL: Final = 0.02


def wait_for_listener(host: str, port: int, timeout: timedelta) -> None:
    """Wait until something listens at a port. The store's client would hold the GIL meanwhile.

    Raises:
        TimeoutError: Nothing does within the timeout.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    while not _is_listening(host, port):
        if time.monotonic() > deadline:
            raise TimeoutError("nothing listens there")
        time.sleep(_POLL_INTERVAL)


def supports_hpu(backend: str) -> bool:
    """Return whether a registered backend may take hpu tensors; torch knows its name, not its devices."""
    return backend not in _CPU_GPU_BACKENDS and hasattr(dist.Backend, backend.upper())


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
