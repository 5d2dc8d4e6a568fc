"""Acting on modules when they are imported."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core.registration import _hook

_NAME = "module_that_is_waited_for"


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[ModuleType]]:
    """What was acted on, while `_NAME` alone is waited for; nothing is installed yet."""
    acted: list[ModuleType] = []
    installed = _hook._finder in sys.meta_path
    if installed:
        sys.meta_path.remove(_hook._finder)
    (tmp_path / f"{_NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_hook, "MODULES", {_NAME: "lightning"})
    monkeypatch.setattr(_hook, "_act", acted.append)
    yield acted
    sys.modules.pop(_NAME, None)
    if _hook._finder in sys.meta_path:
        sys.meta_path.remove(_hook._finder)
    if installed:
        sys.meta_path.insert(0, _hook._finder)


def test_a_module_is_acted_on_when_it_is_complete(acted: list[ModuleType]) -> None:
    """The action sees what the module defines."""
    _hook.install()
    module = importlib.import_module(_NAME)

    assert acted == [module]
    assert acted[0].value == 1


def test_a_module_that_has_been_imported_is_acted_on_at_once(acted: list[ModuleType]) -> None:
    """The order of imports does not matter."""
    module = importlib.import_module(_NAME)
    _hook.install()

    assert acted == [module]


def test_installing_twice_acts_once(acted: list[ModuleType]) -> None:
    """Both torch and hpu_core ask for it."""
    _hook.install()
    _hook.install()
    importlib.import_module(_NAME)

    assert len(acted) == 1


def test_the_module_keeps_its_loader(acted: list[ModuleType]) -> None:
    """Tools that look at sources see no difference."""
    _hook.install()
    module = importlib.import_module(_NAME)

    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert inspect.getsource(module) == "value = 1\n"


def test_the_source_can_be_had_without_importing(acted: list[ModuleType]) -> None:
    """A spec that somebody asks for has what the module's own loader has."""
    _hook.install()
    spec = importlib.util.find_spec(_NAME)

    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_source(_NAME) == "value = 1\n"  # type: ignore[attr-defined]
    assert not acted


def test_other_modules_are_not_looked_for(acted: list[ModuleType]) -> None:
    """They cost a look into a dictionary."""
    assert _hook._finder.find_spec("json.tool", None) is None


def test_a_module_that_is_not_there_is_not_found(acted: list[ModuleType], tmp_path: Path) -> None:
    """The error is Python's own."""
    (tmp_path / f"{_NAME}.py").unlink()
    importlib.invalidate_caches()
    _hook.install()

    with pytest.raises(ModuleNotFoundError, match=f"No module named '{_NAME}'"):
        importlib.import_module(_NAME)


def test_after_removal_nothing_is_acted_on(acted: list[ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec that was found before is only a spec."""
    _hook.install()
    spec = importlib.util.find_spec(_NAME)
    sys.meta_path.remove(_hook._finder)

    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert not acted
