"""Tests of lazy exports."""

import fractions
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


def test_name_is_imported_on_its_first_use(package: types.ModuleType) -> None:
    """It is an ordinary attribute afterwards."""
    before = "Fraction" in vars(package)

    assert package.Fraction is fractions.Fraction
    assert (before, vars(package)["Fraction"]) == (False, fractions.Fraction)
    assert {"Fraction", "gone", "__name__"} <= set(dir(package))


@pytest.mark.parametrize(("name", "module"), [("Fractoin", "package_with_exports"), ("gone", "fractions")])
def test_missing_name_is_an_attribute_error(name: str, module: str, package: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute '{name}'"):
        getattr(package, name)
