"""Fixtures of file systems."""

import resource
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Limit files to 64 KiB; writing more fails as on a full disk."""
    size = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, size[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, size)
    signal.signal(signal.SIGXFSZ, handler)
