"""What a bridge that is not loaded yet is told of the op lists."""

import os
from pathlib import Path
from typing import Any

import pytest

from hpu_core import bridge
from hpu_precision import HPUPrecisionPlugin, OpLists, _variables

_LISTS = OpLists.create(bf16_ops=["linear", "relu"], fp32_ops=["cross_entropy", "truediv", "log_softmax"])


@pytest.fixture(autouse=True)
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose bridge is not loaded and has been told nothing."""
    monkeypatch.setattr(bridge, "is_loaded", lambda: False)
    monkeypatch.setattr(bridge, "plugin_version", lambda: "1.24.1.482")
    monkeypatch.setattr(_variables._State, "lists", None)


def _read(variable: str) -> list[str]:
    return Path(os.environ[variable]).read_text(encoding="utf-8").splitlines()


def test_the_files_hold_the_bridges_own_names() -> None:
    """Names are translated to the bridge's, one on each line, without what it does not know."""
    _variables.announce(_LISTS)

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
def test_older_releases_are_told_by_their_names(old: str, new: str) -> None:
    """The variables of older releases name the same files."""
    _variables.announce(_LISTS)

    assert os.environ[old] == os.environ[new]


def test_the_plugin_tells_the_bridge() -> None:
    """Making a plugin is early enough, as long as the bridge is not loaded."""
    HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear", "relu"])

    assert _read("LOWER_LIST") == ["linear"]


def test_the_same_lists_are_told_once() -> None:
    """A second plugin with the same lists writes no more files."""
    _variables.announce(_LISTS)
    path = os.environ["LOWER_LIST"]
    _variables.announce(OpLists.create(bf16_ops=["relu", "linear"], fp32_ops=[*_LISTS.fp32]))

    assert os.environ["LOWER_LIST"] == path


@pytest.mark.parametrize("loaded", [False, True])
def test_it_may_be_too_late(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that is loaded is told nothing, since it would not read it."""
    monkeypatch.setattr(bridge, "is_loaded", lambda: loaded)
    _variables.announce(_LISTS)

    assert ("LOWER_LIST" in os.environ) is not loaded
    assert _variables.announced() == (None if loaded else _LISTS)


@pytest.mark.parametrize("lists", [{"bf16_ops": ["relu"]}, {"fp32_ops": ["relu", "gelu"]}])
def test_a_list_that_the_bridge_does_not_understand_is_not_told(lists: dict[str, Any]) -> None:
    """Without a name in it, a file would stand for the bridge's own list."""
    _variables.announce(OpLists.create(**lists))

    assert "LOWER_LIST" not in os.environ


@pytest.mark.parametrize("version", ["1.11.0.587", "1.24.1.482"])
def test_default_lists_and_hmp_are_not_told(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge has the default lists itself, and HMP is given its lists otherwise."""
    monkeypatch.setattr(bridge, "plugin_version", lambda: version)
    HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"] if version.startswith("1.11") else None)

    assert "LOWER_LIST" not in os.environ
