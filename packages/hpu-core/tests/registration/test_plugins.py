"""The contract with other distributions."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpu_core.registration import plugins

from .programs import make_peer


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is installed is found out anew, and again afterwards."""
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without peers."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])


def test_a_plugin_is_found_by_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point gives it."""
    make_peer(tmp_path, "hpu_test_a", "Plugin(default_multi_device='hpu_a')")
    monkeypatch.syspath_prepend(tmp_path)

    assert plugins.installed()["hpu-test-a"].default_multi_device == "hpu_a"


def test_what_is_no_plugin_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what it should be."""
    make_peer(tmp_path, "hpu_test_b", "{}")
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = plugins.installed()

    assert "hpu-test-b" not in found
    assert "hpu_test_b:PLUGIN must be a hpu_core.registration.plugins.Plugin, got {}" in caplog.text


def test_what_cannot_be_loaded_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken peer does not keep a Trainer from using the CPU."""
    make_peer(tmp_path, "hpu_test_c", "1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = plugins.installed()

    assert "hpu-test-c" not in found
    assert "hpu-test-c is installed and cannot be loaded" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("hpu_parallel", "hpu-ddp"),
        ("hpu_ddp", "hpu-ddp"),
        ("ddp_spawn", "hpu-ddp"),
        ("hpu_deepspeed_stage_3_offload", "hpu-deepspeed"),
        ("deepspeed", "hpu-deepspeed"),
    ],
)
def test_a_missing_distribution_is_named(name: str, distribution: str, nothing_installed: None) -> None:
    """One sentence: for what, what is missing, and the command."""
    error = plugins.missing(name)

    assert str(error) == (
        f"`strategy='{name}'` on Gaudi needs {distribution}, which is not installed: pip install {distribution}"
    )


def test_what_nobody_offers_is_not_missing(nothing_installed: None) -> None:
    """Lightning says what there is."""
    assert plugins.missing("fsdp") is None


def test_what_is_installed_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that an installed distribution does not have is Lightning's to refuse."""
    monkeypatch.setattr(plugins, "installed", lambda: {"hpu-ddp": plugins.Plugin()})

    assert plugins.missing("hpu_ddp_of_tomorrow") is None
