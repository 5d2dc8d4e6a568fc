"""Names that a package fetches when they are first used."""

import sys
import types

import pytest

from hpu_core.lazy_exports import lazy_exports


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with two names of another module's."""
    module = types.ModuleType("package_with_exports")
    names = vars(module)
    names["__getattr__"], names["__dir__"] = lazy_exports(module.__name__, {"fractions": ["Fraction", "gone"]})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_name_is_its_modules(package: types.ModuleType) -> None:
    """The very object."""
    from fractions import Fraction

    assert package.Fraction is Fraction


def test_a_name_is_fetched_once(package: types.ModuleType) -> None:
    """After the first use it is an ordinary attribute."""
    before = "Fraction" in vars(package)
    value = package.Fraction

    assert not before
    assert vars(package)["Fraction"] is value


def test_names_are_listed_before_they_are_fetched(package: types.ModuleType) -> None:
    """Beside what the package has by itself, for tab completion."""
    assert {"Fraction", "gone", "__name__"} <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error(package: types.ModuleType) -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match="module 'package_with_exports' has no attribute 'Fractoin'"):
        _ = package.Fractoin


def test_a_name_that_its_module_lacks_is_an_attribute_error(package: types.ModuleType) -> None:
    """Which names that module."""
    with pytest.raises(AttributeError, match="module 'fractions' has no attribute 'gone'"):
        _ = package.gone
