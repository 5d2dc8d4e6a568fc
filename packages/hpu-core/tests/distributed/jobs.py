"""Jobs for tests: processes of launched ranks, and a store with the job of a rank."""

from datetime import timedelta
from subprocess import Popen
from typing import Any
from unittest import mock

from hpu_core.distributed.rendezvous import Job, TCPStore
from hpu_testing import free_port


def launched_process(code: int | None = None) -> mock.Mock:
    """Return the process of a launched rank, which has exited with this code if there is one."""
    process: mock.Mock = mock.create_autospec(Popen, instance=True)
    process.poll.return_value, process.pid = code, 1
    return process


def make_job(rank: int = 0, world_size: int = 2, seconds: float = 60, port: int | None = None, **options: Any) -> Job:
    """Return the job of a rank on this machine."""
    return Job("127.0.0.1", port or free_port(), rank, rank, world_size, timedelta(seconds=seconds), **options)


def serve(port: int) -> TCPStore:
    """Return a store at a port, as torchrun's agent keeps."""
    return TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
