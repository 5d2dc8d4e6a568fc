"""Option `--quick`, which skips tests that start a process; forks in place of new interpreters."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--quick", action="store_true", help="skip tests that start a process")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if the option is given."""
    if config.getoption("quick"):
        config.pluginmanager.register(_SkipProcesses())


@pytest.fixture
def forks() -> Iterator[None]:
    """Let the Python programs that a test starts be forks, of an interpreter that has imported torch."""
    from hpu_testing.fork_server import forks

    with forks():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Let the process of a test marked `hpu` be a fork. On the cards of a Gaudi machine it has none."""
    if item.get_closest_marker("hpu") is None:
        return (yield)

    from hpu_testing.fork_server import forks

    with forks():
        return (yield)


class _SkipProcesses:
    """Plugin that skips a test in place of starting its first process."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess.Popen, "__init__", _skip)
            patch.setattr(os, "fork", _skip)
            return (yield)


def _skip(*args: Any, **kwargs: Any) -> NoReturn:
    del args, kwargs
    pytest.skip("starts a process")
