"""Tests of the commands in error messages."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from hpu_core.install_hints import install_command


class _Distribution:
    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        return self._direct_url if name == "direct_url.json" else None


def test_command_is_for_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Distribution(None))

    assert install_command("hpu-ddp") == "pip install hpu-ddp"


@pytest.mark.parametrize(
    ("is_installed", "command"),
    [(False, "pip install 'hpu-deepspeed[deepspeed]'"), (True, "pip install hpu-deepspeed")],
)
def test_library_of_a_package_comes_with_it_unless_one_is_there(
    is_installed: bool, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intel's fork of DeepSpeed must not be replaced."""
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Distribution(None))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if is_installed else None)

    assert install_command("hpu-deepspeed") == command


def test_command_is_for_the_checkout_that_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = tmp_path / "my packages" / "hpu-ddp"
    neighbour.mkdir(parents=True)
    (neighbour / "pyproject.toml").touch()
    url = f'{{"url": "{(neighbour.parent / "hpu-core").as_uri()}"}}'
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Distribution(url))

    assert install_command("hpu-ddp") == f"pip install '{neighbour}'"
    assert install_command("hpu-sim") == "pip install hpu-sim"


def test_command_is_for_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", fail)
    packages = Path(__file__).resolve().parents[2]

    assert install_command("hpu-core") == f"pip install {packages / 'hpu-core'}"
