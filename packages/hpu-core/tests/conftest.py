"""Fixtures for processes without a bridge and with a fake one."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hpu_core import bridge
from hpu_testing import SharedRankPool

_TESTS = Path(__file__).parent

# Collecting doctests would import the fake in place of the bridge.
collect_ignore = ["fake_bridge"]

# Variables that the bridge, a launcher or the shell may have set.
_VARIABLES = (
    "HABANA_VISIBLE_MODULES",
    "HLS_MODULE_ID",
    "HPU_CORE_FRAMEWORK",
    "HPU_SELECTED_MODULES",
    "ID",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PT_HPU_LAZY_MODE",
    "RANK",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "WORLD_SIZE",
)


class FakeBridge:
    """Modules of tests/fake_bridge, imported on first use."""

    # Any: tests read and set attributes of the modules.
    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(f"habana_frameworks.torch.{name.replace('_', '.')}")


@pytest.fixture
def environment() -> Iterator[None]:
    """Remove the variables that concern Gaudi, and restore the environment afterwards."""
    with mock.patch.dict(os.environ):
        for name in _VARIABLES:
            os.environ.pop(name, None)
        yield


@pytest.fixture
def no_bridge(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not imported the bridge."""
    bridge._import.cache_clear()
    for name in _bridge_modules():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in _bridge_modules():
        del sys.modules[name]
    bridge._import.cache_clear()


@pytest.fixture
def fake_bridge(no_bridge: None, monkeypatch: pytest.MonkeyPatch) -> FakeBridge:
    """A machine with the fake bridge, not imported yet, in eager mode."""
    monkeypatch.syspath_prepend(_TESTS / "fake_bridge")
    return FakeBridge()


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Any]]]:
    """Return a function that calls a function at module level on two ranks, which may have a process group."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks.call


@pytest.fixture(scope="session")
def make_plugin() -> Callable[[Path, str, str], None]:
    """Write a distribution with a plugin: `make_plugin(folder, "hpu_test", "Plugin()")`."""

    def make(folder: Path, module: str, plugin: str) -> None:
        text = f"from hpu_core.plugins import ClassPaths, Plugin\nPLUGIN = {plugin}\n"
        (folder / f"{module}.py").write_text(text)
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[hpu_core.plugins]\n{module} = {module}:PLUGIN\n")

    return make


def _bridge_modules() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "habana_frameworks"]
