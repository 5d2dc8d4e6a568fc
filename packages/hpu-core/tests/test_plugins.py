"""Tests of the plugins of other distributions."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpu_core import plugins
from hpu_core.install_hints import install_command

MakePlugin = Callable[[Path, str, str], None]


@pytest.fixture(autouse=True)
def clear_cache() -> Iterator[None]:
    """Forget the installed plugins before and after each test."""
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plugin: MakePlugin) -> Callable[[str, str], None]:
    """Install a distribution with a plugin: `install("hpu_test", "Plugin()")`."""

    def install(module: str, plugin: str) -> None:
        make_plugin(tmp_path, module, plugin)
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without plugins."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])


def test_plugin_is_found_by_distribution(install: Callable[[str, str], None]) -> None:
    install("hpu_test_a", "Plugin(default_multi_device='hpu_a')")

    assert plugins.installed()["hpu-test-a"].default_multi_device == "hpu_a"


@pytest.mark.parametrize(
    ("module", "plugin", "messages"),
    [
        ("hpu_test_b", "{}", ["hpu_test_b:PLUGIN must be a hpu_core.plugins.Plugin, got {}"]),
        ("hpu_test_c", "1 / 0", ["cannot load the plugin of hpu-test-c", "ZeroDivisionError"]),
    ],
    ids=["wrong type", "fails to load"],
)
def test_broken_plugin_is_skipped_with_warning(
    module: str, plugin: str, messages: list[str], install: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    install(module, plugin)
    with caplog.at_level(logging.WARNING):
        found = plugins.installed()

    assert module.replace("_", "-") not in found
    assert all(message in caplog.text for message in messages)


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("hpu_parallel", "hpu-ddp"),
        ("hpu_ddp", "hpu-ddp"),
        ("ddp_spawn", "hpu-ddp"),
        ("hpu_deepspeed_stage_3_offload", "hpu-deepspeed"),
        ("deepspeed", "hpu-deepspeed"),
        ("fsdp_cpu_offload", "hpu-fsdp"),
        ("hpu_model_parallel", "hpu-fsdp"),
    ],
)
@pytest.mark.usefixtures("nothing_installed")
def test_error_names_missing_distribution(name: str, distribution: str) -> None:
    assert str(plugins.missing_strategy_error(name)) == (
        f"`strategy='{name}'` on Gaudi needs {distribution}, which is not installed: {install_command(distribution)}"
    )


@pytest.mark.usefixtures("nothing_installed")
def test_unknown_strategy_is_left_to_lightning() -> None:
    assert plugins.missing_strategy_error("xla") is None


def test_unknown_strategy_of_installed_distribution_is_left_to_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", lambda: {"hpu-ddp": plugins.Plugin()})

    assert plugins.missing_strategy_error("hpu_ddp_of_tomorrow") is None
