"""Ranks that the tests of all packages together share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpu_testing import SharedRankPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRankPool]:
    """Ranks between whose tests there is no process group."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as pool:
        yield pool
