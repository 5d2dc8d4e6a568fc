"""Tests of the workaround for HMP in Lightning 2.0; `registration/test_by_name.py` runs Lightning 2.0 itself."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core import _lightning_2_0, bridge

_NAME = "lightning.pytorch.accelerators.hpu"


@pytest.fixture
def fake_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Lightning that sees a device when it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    path = tmp_path.joinpath(*_NAME.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text("_HPU_AVAILABLE = True\n")
    for package in list(path.parents)[:3]:
        (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not _lightning_2_0._hook])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        del sys.modules[name]


@pytest.mark.usefixtures("fake_lightning")
@pytest.mark.parametrize(("hmp", "expected"), [(None, False), (ModuleType("hmp"), True)])
def test_lightning_sees_device_only_with_hmp(
    hmp: ModuleType | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "hmp", lambda: hmp)
    _lightning_2_0.install()

    assert vars(importlib.import_module(_NAME))["_HPU_AVAILABLE"] is expected


@pytest.mark.parametrize("content", [{}, {"_HPU_AVAILABLE": False}], ids=["another module", "no device"])
def test_bridge_is_not_loaded_without_device(content: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "hmp", lambda: pytest.fail("loaded the bridge"))
    module = ModuleType(_NAME)
    vars(module).update(content)

    _lightning_2_0.disable_hmp_import(module)

    assert {name: vars(module)[name] for name in content} == content
