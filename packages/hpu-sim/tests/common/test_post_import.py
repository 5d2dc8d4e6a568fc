"""Import hook that calls a function."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

from hpu_sim.common.post_import import WrappedLoader, after_import

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module that is importable and not imported yet."""
    (tmp_path / "hooked_module.py").write_text("value = 1\nloader = __loader__, __spec__.loader\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "hooked_module"
    sys.modules.pop("hooked_module", None)
    sys.meta_path[:] = finders


def test_each_callback_runs_once_after_the_import(module: str) -> None:
    """It sees the complete module. The hook is removed, and reloading does not call it again."""
    seen: list[tuple[str, int]] = []
    before = list(sys.meta_path)
    after_import(module, lambda: seen.append(("a", sys.modules[module].value)))
    after_import(module, lambda: seen.append(("b", sys.modules[module].value)))

    importlib.reload(importlib.import_module(module))

    assert sorted(seen) == [("a", 1), ("b", 1)]
    assert sys.meta_path == before


def test_the_callback_runs_now_if_the_module_is_imported() -> None:
    seen: list[int] = []

    after_import("sys", lambda: seen.append(1))

    assert seen == [1]


def test_finding_the_spec_is_not_an_import(module: str) -> None:
    """`find_spec` neither calls the callback nor removes the hook, which other modules do not have."""
    seen: list[int] = []
    after_import(module, lambda: seen.append(1))

    found, other = importlib.util.find_spec(module), importlib.util.find_spec("antigravity")
    assert found is not None
    assert other is not None
    assert [isinstance(each.loader, WrappedLoader) for each in (found, other)] == [True, False]
    assert seen == []
    importlib.import_module(module)
    assert seen == [1]


def test_the_module_sees_its_own_loader(module: str) -> None:
    """Tracebacks and `inspect` find the source through it."""
    after_import(module, lambda: None)

    loaded = importlib.import_module(module)

    assert [type(loader).__name__ for loader in loaded.loader] == ["SourceFileLoader"] * 2
    assert type(loaded.__loader__).__name__ == "SourceFileLoader"


def test_hooks_of_a_module_share_a_finder(module: str) -> None:
    """Each finder searches all others, so that several of one name would take exponential time."""
    before = len(sys.meta_path)
    for _ in range(30):
        after_import(module, lambda: None)

    assert len(sys.meta_path) == before + 1
    assert importlib.util.find_spec(module) is not None


def test_a_missing_module_is_still_missing() -> None:
    """The import fails as it does without a hook."""
    finders = list(sys.meta_path)
    after_import("no_module_of_this_name", lambda: None)
    try:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_module_of_this_name")
    finally:
        sys.meta_path[:] = finders


def test_the_import_raises_what_the_callback_raises(module: str) -> None:
    """A program that asked for a device must not run without it."""

    def fail() -> None:
        raise RuntimeError("no device")

    after_import(module, fail)

    with pytest.raises(RuntimeError, match="no device"):
        importlib.import_module(module)
