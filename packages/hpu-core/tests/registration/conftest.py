"""Programs that have imported Lightning, which the tests share."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hpu_core import frameworks

from .programs import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a `Server` for these environment variables, unless there is one."""
    with ExitStack() as stack:

        @functools.cache
        def start(**variables: str) -> Server:
            own = {"HPU_CORE_FRAMEWORK": frameworks.current().name, "HPU_SIM_MEMORY": "64MiB"}
            started = Server(tmp_path_factory.mktemp("machine"), **own, **variables)
            stack.callback(started.close)
            return started

        yield start
