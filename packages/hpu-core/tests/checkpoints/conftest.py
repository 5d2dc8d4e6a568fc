"""Fixture of a file system."""

from collections.abc import Iterator

import pytest

from hpu_testing.kills import limited_files


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Limit files to 64 KiB."""
    with limited_files(1 << 16):
        yield
