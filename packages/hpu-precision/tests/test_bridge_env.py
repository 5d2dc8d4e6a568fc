"""Tests of exporting op lists to a bridge that is not loaded yet."""

import os
from pathlib import Path
from typing import Any

import pytest

from hpu_core import bridge
from hpu_precision import HPUPrecisionPlugin, OpLists, _bridge_env

_LISTS = OpLists.create(bf16_ops=["linear", "relu"], fp32_ops=["cross_entropy", "truediv", "log_softmax"])


@pytest.fixture(autouse=True)
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake a bridge that is not loaded, without exported op lists."""
    monkeypatch.setattr(bridge, "is_loaded", lambda: False)
    monkeypatch.setattr(bridge, "plugin_version", lambda: "1.24.1.482")
    monkeypatch.setattr(_bridge_env._State, "lists", None)


def _read(variable: str) -> list[str]:
    return Path(os.environ[variable]).read_text(encoding="utf-8").splitlines()


def test_files_contain_the_bridges_names() -> None:
    """Names are translated to the bridge's vocabulary, one per line; unknown ones are left out."""
    _bridge_env.export_op_lists(_LISTS)

    assert _read("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST") == ["linear"]
    assert _read("PT_HPU_AUTOCAST_FP32_OPS_LIST") == [
        *("cross_entropy_loss", "div", "log_softmax", "true_divide", "truediv")
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LOWER_LIST", "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"),
        ("FP32_LIST", "PT_HPU_AUTOCAST_FP32_OPS_LIST"),
    ],
)
def test_bridge_env_of_older_releases_are_set(old: str, new: str) -> None:
    """They have the same value as the current ones."""
    _bridge_env.export_op_lists(_LISTS)

    assert os.environ[old] == os.environ[new]


def test_plugin_exports_its_op_lists() -> None:
    HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear", "relu"])

    assert _read("LOWER_LIST") == ["linear"]


def test_equal_lists_are_exported_once() -> None:
    """A second plugin with the same lists writes no new files."""
    _bridge_env.export_op_lists(_LISTS)
    path = os.environ["LOWER_LIST"]
    _bridge_env.export_op_lists(OpLists.create(bf16_ops=["relu", "linear"], fp32_ops=[*_LISTS.fp32]))

    assert os.environ["LOWER_LIST"] == path


@pytest.mark.parametrize("loaded", [False, True])
def test_nothing_is_exported_to_a_loaded_bridge(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not read the variables any more."""
    monkeypatch.setattr(bridge, "is_loaded", lambda: loaded)
    _bridge_env.export_op_lists(_LISTS)

    assert ("LOWER_LIST" in os.environ) is not loaded
    assert _bridge_env.exported_op_lists() == (None if loaded else _LISTS)


@pytest.mark.parametrize("lists", [{"bf16_ops": ["relu"]}, {"fp32_ops": ["relu", "gelu"]}])
def test_lists_without_a_name_of_the_bridge_are_not_exported(lists: dict[str, Any]) -> None:
    """An empty file would select the bridge's own list."""
    _bridge_env.export_op_lists(OpLists.create(**lists))

    assert "LOWER_LIST" not in os.environ


@pytest.mark.parametrize("version", ["1.11.0.587", "1.24.1.482"])
def test_default_lists_and_lists_for_hmp_are_not_exported(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge has the default lists itself, and HMP takes its lists as files."""
    monkeypatch.setattr(bridge, "plugin_version", lambda: version)
    HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"] if version.startswith("1.11") else None)

    assert "LOWER_LIST" not in os.environ
