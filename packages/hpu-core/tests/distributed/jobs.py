"""Processes of launched ranks for tests."""

from subprocess import Popen
from unittest import mock


def launched_process(code: int | None = None) -> mock.Mock:
    """Return the process of a launched rank, which has exited with this code if there is one."""
    process: mock.Mock = mock.create_autospec(Popen, instance=True)
    process.poll.return_value, process.pid = code, 1
    return process
