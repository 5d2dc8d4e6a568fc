"""What all suites share: `--quick`, forks in place of new interpreters, time limits, and tests that leave nothing."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--quick", action="store_true", help="skip tests that start a process")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if the option is given, and give this process a folder of its own for temporary files."""
    from hpu_testing import limits

    if config.getoption("quick"):
        config.pluginmanager.register(_SkipProcesses())
    # Folders of tests stay where pytest keeps those of the last runs.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="hpu-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # What torch has compiled once, for all suites and runs.
    compiled = f"{os.environ['PYTEST_DEBUG_TEMPROOT']}/torchinductor_{os.getuid()}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", compiled)
    sys.addaudithook(limits.notice_start)


def pytest_collection_finish() -> None:
    """Let the garbage collections of tests leave out what is imported and collected by now."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Iterator[None]:
    """Let the test have the limit of a program when it starts one."""
    from hpu_testing import limits

    if not limits.restarts and settings.timeout < limits.PROGRAM:
        hooks, longer = item.config.pluginmanager.hook, settings._replace(timeout=limits.PROGRAM)

        def restart() -> None:
            hooks.pytest_timeout_cancel_timer(item=item)
            hooks.pytest_timeout_set_timer(item=item, settings=longer)

        limits.restarts.append(restart)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Forget how to restart the limit of the test at its end."""
    from hpu_testing import limits

    try:
        return (yield)
    finally:
        limits.restarts.clear()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves something in this process or on its machine, which another test may meet."""
    from hpu_testing.leftovers import Belongings

    before = Belongings.now()
    yield
    # pytest keeps what fixtures have returned until later.
    request.node.funcargs.clear()
    left = before.additions()
    if left:
        pytest.fail(f"the test leaves {', '.join(left)}", pytrace=False)


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
