"""Tests of the choice between `lightning` and `pytorch_lightning`."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from hpu_core import frameworks

Install = Callable[[str, str], None]

pytestmark = pytest.mark.usefixtures("environment")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a Lightning on a machine that has none: `install("lightning", "2.5.1")`."""
    monkeypatch.syspath_prepend(tmp_path)
    # A Trainer of another test has chosen one for this process.
    monkeypatch.setattr(frameworks, "_preferred", None)
    for name in frameworks.NAMES:
        monkeypatch.setitem(sys.modules, name, None)

    def install(name: str, version: str) -> None:
        monkeypatch.delitem(sys.modules, name)
        package = tmp_path / name / "__init__.py"
        package.parent.mkdir()
        package.write_text("raise AssertionError('`decide` must not import this')\n")
        metadata = tmp_path / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")

    return install


@pytest.fixture
def pretend_imported(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a package appear to be imported."""

    def pretend(name: str) -> None:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    return pretend


@pytest.mark.parametrize("name", frameworks.NAMES)
def test_only_installed_framework_is_used(install: Install, name: str) -> None:
    install(name, "2.3.0")

    framework = frameworks.decide()

    assert (framework.name, str(framework.version)) == (name, "2.3.0")


@pytest.mark.parametrize(
    ("imported", "preferred", "variable", "chosen"),
    [
        ((), (), None, "lightning"),
        (("lightning",), (), None, "lightning"),
        (("pytorch_lightning",), (), None, "pytorch_lightning"),
        (frameworks.NAMES, (), None, "lightning"),
        # The first preference counts.
        (frameworks.NAMES, ("pytorch_lightning", "lightning"), None, "pytorch_lightning"),
        (("lightning",), (), "pytorch_lightning", "pytorch_lightning"),
    ],
)
def test_choice_between_two(  # noqa: PLR0913, PLR0917 - a table.
    imported: tuple[str, ...],
    preferred: tuple[frameworks.FrameworkName, ...],
    variable: str | None,
    chosen: str,
    install: Install,
    pretend_imported: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The distribution `lightning` installs both."""
    install("lightning", "2.5.1")
    install("pytorch_lightning", "2.4.0")
    for name in imported:
        pretend_imported(name)
    for name in preferred:
        frameworks.prefer(name)
    if variable is not None:
        monkeypatch.setenv("HPU_CORE_FRAMEWORK", variable)

    assert frameworks.decide().name == chosen


@pytest.mark.parametrize(
    ("variable", "error", "message"),
    [
        ("fabric", ValueError, "HPU_CORE_FRAMEWORK must be 'lightning' or 'pytorch_lightning', got 'fabric'"),
        ("pytorch_lightning", ModuleNotFoundError, "'pytorch_lightning', which is not installed: pip install"),
    ],
)
def test_variable_does_not_fall_back(
    variable: str, error: type[Exception], message: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("lightning", "2.5.1")
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", variable)

    with pytest.raises(error, match=message):
        frameworks.decide()


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("lightning", "2.6.2", "lightning 2.6.2 is a compromised release"),
        ("pytorch_lightning", "2.6.3", "pytorch_lightning 2.6.3 is a compromised release"),
        ("pytorch_lightning", "1.9.5", r"pytorch_lightning 2\.0 or newer, got 1\.9\.5: pip install -U"),
    ],
)
def test_release_is_rejected_without_import(install: Install, name: str, version: str, message: str) -> None:
    """The package raises AssertionError when it is imported."""
    install(name, version)

    with pytest.raises(ImportError, match=message):
        frameworks.decide()


@pytest.mark.usefixtures("install")
def test_error_without_lightning_has_the_command() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"neither .* is installed: pip install lightning$"):
        frameworks.decide()


@pytest.mark.parametrize("version", ["2.0", "2.0.0", "2.0.0rc1", "2.6.4", "2.7.0.dev20261101"])
def test_supported_versions(install: Install, version: str) -> None:
    """Pre-releases count as the release that they precede."""
    install("lightning", version)

    assert str(frameworks.decide().version) == version


@pytest.fixture
def source_tree(
    pretend_imported: Callable[[str], None], install: Install, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """An imported `lightning` without metadata."""

    def no_metadata(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    pretend_imported("lightning")
    monkeypatch.setattr(importlib.metadata, "version", no_metadata)
    return sys.modules["lightning"]


def test_version_without_metadata_is_the_modules(source_tree: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "__version__", "1.8.0", raising=False)

    with pytest.raises(ImportError, match=r"got 1\.8\.0"):
        frameworks.decide()


def test_first_decision_holds(pretend_imported: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Later imports and variables do not change it, because classes already derive from one framework."""
    first = frameworks.current()
    other = next(name for name in frameworks.NAMES if name != first.name)
    pretend_imported(other)
    monkeypatch.setenv("HPU_CORE_FRAMEWORK", other)

    assert frameworks.current() is first


def test_description_has_remedy_if_both_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = frameworks.current()
    other = next(name for name in frameworks.NAMES if name != framework.name)
    monkeypatch.setattr(frameworks, "imported", lambda: frameworks.NAMES)

    assert f"does not work with {other}, which is imported too" in frameworks.describe(1)
    assert f"HPU_CORE_FRAMEWORK={other}" in frameworks.describe(1)


@pytest.mark.usefixtures("source_tree")
def test_framework_without_version_is_rejected() -> None:
    with pytest.raises(ImportError, match=r"`lightning\.__version__` must be a version, got 'None'"):
        frameworks.decide()
