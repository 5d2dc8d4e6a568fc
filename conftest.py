"""Option `--quick`, which skips tests that start a process, and the order of tests on several processes of pytest."""

from __future__ import annotations

import functools
import os
import subprocess
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Fixture of a pool of ranks, which starts as many processes.
_POOL = "on_ranks"
# Modules of tests that start processes, most of which take longer than others.
_PROCESSES = ("hpu_testing", "subprocess")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--quick", action="store_true", help="skip tests that start a process")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if the option is given."""
    if config.getoption("quick"):
        config.pluginmanager.register(_SkipProcesses())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left with one of them at the end."""

    @functools.cache
    def rank(path: Path) -> int:
        text = path.read_text(encoding="utf-8")
        if _POOL in text:
            return 0
        return 1 if any(name in text for name in _PROCESSES) else 2

    items.sort(key=lambda item: rank(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Return a scheduler that keeps the tests of a file together, and those of all files that share a pool of ranks.

    Files have fixtures that are slow to set up. Marks (`--dist=loadgroup`) have no effect in pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc] # Of a package without annotations.
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return _POOL if _POOL in (config.rootpath / file).read_text(encoding="utf-8") else file

    return Scheduling(config, log)


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
