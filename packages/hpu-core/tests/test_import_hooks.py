"""Tests of import hooks."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core.import_hooks import ImportHook, PostImportHook

_NAME = "module_with_hook"

MakeHook = Callable[..., PostImportHook]


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Path of a module that can be imported as `_NAME`."""
    path = tmp_path / f"{_NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop(_NAME, None)


@pytest.fixture
def make_hook(importable: Path) -> Iterator[MakeHook]:
    """Factory of hooks on `_NAME`, which are removed after the test."""
    hooks: list[PostImportHook] = []

    def make(callback: Callable[[ModuleType], object]) -> PostImportHook:
        hooks.append(PostImportHook({_NAME}, callback))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.remove()


def test_each_callback_sees_complete_module_once(make_hook: MakeHook) -> None:
    """Installing a hook again does nothing, and other modules have no hook."""
    values: list[tuple[str, int]] = []
    hooks = [make_hook(lambda module, name=name: values.append((name, module.value))) for name in "ab"]
    for hook in (*hooks, *hooks):
        hook.install()
    importlib.import_module(_NAME)

    assert sorted(values) == [("a", 1), ("b", 1)]
    assert hooks[0].find_spec("json.tool", None) is None


def test_callback_runs_at_once_for_imported_module(make_hook: MakeHook) -> None:
    called_with: list[ModuleType] = []
    module = importlib.import_module(_NAME)
    make_hook(called_with.append).install()

    assert called_with == [module]


def test_alias_is_not_the_module(make_hook: MakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning aliases removed modules to modules of stubs, which the callback must not get."""
    monkeypatch.setitem(sys.modules, _NAME, ModuleType("stubs"))
    called_with: list[ModuleType] = []
    make_hook(called_with.append).install()

    assert called_with == []


def test_import_raises_exception_of_callback(make_hook: MakeHook) -> None:
    def fail(module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} must not be imported")

    make_hook(fail).install()

    with pytest.raises(ImportError, match=r"^module_with_hook must not be imported$"):
        importlib.import_module(_NAME)


def test_removed_hook_calls_nothing(make_hook: MakeHook) -> None:
    """A spec that was found before has the methods of the module's loader, and runs it without the callback."""
    called_with: list[ModuleType] = []
    hook = make_hook(called_with.append)
    hook.install()
    spec = importlib.util.find_spec(_NAME)
    hook.remove()

    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_source(_NAME) == "value = 1\n"  # type: ignore[attr-defined]
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert not called_with


@pytest.mark.usefixtures("importable")
def test_subclass_wraps_execution() -> None:
    """`execute` runs code before and after the module."""
    seen: list[bool] = []

    class Wrapper(ImportHook):
        def execute(self, module: ModuleType, exec_module: Callable[[ModuleType], object]) -> None:
            seen.append(hasattr(module, "value"))
            exec_module(module)
            seen.append(hasattr(module, "value"))

    hook = Wrapper({_NAME})
    hook.install()
    try:
        importlib.import_module(_NAME)
    finally:
        hook.remove()

    assert seen == [False, True]
