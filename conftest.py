"""Option `--quick`, which skips tests that start a process."""

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
