"""Running a function once a module is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.post_import import after_import

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported and has not been."""
    (tmp_path / "awaited_module.py").write_text("value = 1\nloader = __loader__, __spec__.loader\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "awaited_module"
    sys.modules.pop("awaited_module", None)
    sys.meta_path[:] = finders


def test_it_runs_after_the_module(module: str) -> None:
    """The module is whole by then."""
    seen: list[int] = []
    after_import(module, lambda: seen.append(sys.modules[module].value))

    importlib.import_module(module)

    assert seen == [1]


def test_it_runs_now_where_the_module_is_there() -> None:
    """Nothing has to be waited for."""
    seen: list[int] = []

    after_import("sys", lambda: seen.append(1))

    assert seen == [1]


def test_it_runs_once(module: str) -> None:
    """Loading the module again is another matter."""
    seen: list[int] = []
    after_import(module, lambda: seen.append(1))
    importlib.import_module(module)

    importlib.reload(sys.modules[module])

    assert seen == [1]


def test_asking_for_the_module_is_not_importing_it(module: str) -> None:
    """find_spec neither runs the action nor ends the wait."""
    seen: list[int] = []
    after_import(module, lambda: seen.append(1))

    assert importlib.util.find_spec(module) is not None
    assert seen == []
    importlib.import_module(module)
    assert seen == [1]


def test_the_module_sees_its_own_loader(module: str) -> None:
    """Tracebacks and inspect find the source as ever."""
    after_import(module, lambda: None)

    loaded = importlib.import_module(module)

    assert [type(loader).__name__ for loader in loaded.loader] == ["SourceFileLoader"] * 2
    assert type(loaded.__loader__).__name__ == "SourceFileLoader"


def test_nothing_stays_behind(module: str) -> None:
    """Imports are as quick as before."""
    before = list(sys.meta_path)
    after_import(module, lambda: None)

    importlib.import_module(module)

    assert sys.meta_path == before


def test_several_can_wait(module: str) -> None:
    """Each runs."""
    seen: list[str] = []
    after_import(module, lambda: seen.append("first"))
    after_import(module, lambda: seen.append("second"))

    importlib.import_module(module)

    assert sorted(seen) == ["first", "second"]


def test_a_module_that_is_not_there_is_still_not_there() -> None:
    """The import fails as it would without a wait."""
    finders = list(sys.meta_path)
    after_import("no_module_of_this_name", lambda: None)
    try:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_module_of_this_name")
    finally:
        sys.meta_path[:] = finders


def test_an_error_of_the_action_is_the_imports(module: str) -> None:
    """A program that asked for a device must not go on without."""

    def fail() -> None:
        raise RuntimeError("no device")

    after_import(module, fail)

    with pytest.raises(RuntimeError, match="no device"):
        importlib.import_module(module)
