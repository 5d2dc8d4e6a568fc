"""Acting on modules when they are imported."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core.registration.imports import PostImportHook

_NAME = "module_that_is_waited_for"

Wait = Callable[..., PostImportHook]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Wait]:
    """Makes what waits for `_NAME`, which can be imported, with a function to call; nothing is installed yet."""
    (tmp_path / f"{_NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    made: list[PostImportHook] = []

    def wait(act: Callable[[ModuleType], object]) -> PostImportHook:
        made.append(PostImportHook({_NAME}, act))
        return made[-1]

    yield wait
    sys.modules.pop(_NAME, None)
    for hook in made:
        hook.remove()


def test_a_module_is_acted_on_when_it_is_complete(waiting: Wait) -> None:
    """The action sees what the module defines."""
    values: list[int] = []
    waiting(lambda module: values.append(module.value)).install()
    importlib.import_module(_NAME)

    assert values == [1]


def test_a_module_that_has_been_imported_is_acted_on_at_once(waiting: Wait) -> None:
    """The order of imports does not matter."""
    acted: list[ModuleType] = []
    module = importlib.import_module(_NAME)
    waiting(acted.append).install()

    assert acted == [module]


def test_a_module_under_the_name_of_another_is_another(waiting: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lightning's stubs, which stand for modules that it has removed."""
    monkeypatch.setitem(sys.modules, _NAME, ModuleType("stubs"))
    acted: list[ModuleType] = []
    waiting(acted.append).install()

    assert acted == []


def test_installing_twice_acts_once(waiting: Wait) -> None:
    """Both torch and hpu_core ask for it."""
    acted: list[ModuleType] = []
    hook = waiting(acted.append)
    hook.install()
    hook.install()
    importlib.import_module(_NAME)

    assert len(acted) == 1


def test_two_may_wait_for_the_same_module(waiting: Wait) -> None:
    """Other packages have a use for it, too."""
    acted: list[str] = []
    waiting(lambda _: acted.append("first")).install()
    waiting(lambda _: acted.append("second")).install()
    importlib.import_module(_NAME)

    assert sorted(acted) == ["first", "second"]


def test_what_the_action_raises_is_raised_by_the_import(waiting: Wait) -> None:
    """The importing program hears of it."""

    def refuse(module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} is not wanted")

    waiting(refuse).install()

    with pytest.raises(ImportError, match=r"^module_that_is_waited_for is not wanted$"):
        importlib.import_module(_NAME)


def test_the_module_keeps_its_loader(waiting: Wait) -> None:
    """Tools that look at sources see no difference."""
    waiting(id).install()
    module = importlib.import_module(_NAME)

    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert inspect.getsource(module) == "value = 1\n"


def test_the_source_can_be_had_without_importing(waiting: Wait) -> None:
    """A spec that somebody asks for has what the module's own loader has."""
    acted: list[ModuleType] = []
    waiting(acted.append).install()
    spec = importlib.util.find_spec(_NAME)

    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_source(_NAME) == "value = 1\n"  # type: ignore[attr-defined]
    assert not acted


def test_other_modules_are_not_looked_for(waiting: Wait) -> None:
    """They cost a look into a set."""
    assert waiting(id).find_spec("json.tool", None) is None


def test_a_module_that_is_not_there_is_not_found(waiting: Wait, tmp_path: Path) -> None:
    """The error is Python's own."""
    (tmp_path / f"{_NAME}.py").unlink()
    importlib.invalidate_caches()
    waiting(id).install()

    with pytest.raises(ModuleNotFoundError, match=f"No module named '{_NAME}'"):
        importlib.import_module(_NAME)


def test_after_removal_nothing_is_acted_on(waiting: Wait) -> None:
    """A spec that was found before is only a spec."""
    acted: list[ModuleType] = []
    hook = waiting(acted.append)
    hook.install()
    spec = importlib.util.find_spec(_NAME)
    hook.remove()

    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert not acted
