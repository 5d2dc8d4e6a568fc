"""Tests of lazy exports."""

import sys
import types

import pytest

from hpu_core.lazy_exports import lazy_exports


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Package with two lazy names of another module."""
    module = types.ModuleType("package_with_exports")
    names = vars(module)
    names["__getattr__"], names["__dir__"] = lazy_exports(module.__name__, {"fractions": ["Fraction", "gone"]})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_name_is_object_of_module(package: types.ModuleType) -> None:
    from fractions import Fraction

    assert package.Fraction is Fraction


def test_name_is_imported_once(package: types.ModuleType) -> None:
    """It is an ordinary attribute after the first use."""
    before = "Fraction" in vars(package)
    value = package.Fraction

    assert not before
    assert vars(package)["Fraction"] is value


def test_dir_lists_lazy_names(package: types.ModuleType) -> None:
    assert {"Fraction", "gone", "__name__"} <= set(dir(package))


def test_unknown_name_is_an_attribute_error(package: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'package_with_exports' has no attribute 'Fractoin'"):
        _ = package.Fractoin


def test_missing_name_in_module_is_an_attribute_error(package: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'fractions' has no attribute 'gone'"):
        _ = package.gone
