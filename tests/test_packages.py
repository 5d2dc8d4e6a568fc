"""What every package under packages/ has in common."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMES = [path.name for path in PACKAGES]
# Every import package; hpu-compat has two.
MODULES = sorted(path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py"))
CONFIGURATION = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_licence_is_the_roots(package: Path) -> None:
    """Each distribution carries its own copy of the licence, because a link out of the folder is unsafe in an sdist."""
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_folder_names_the_distribution(package: Path) -> None:
    """The folder, the distribution and an import package have the same name, so that each can be found by another."""
    project = tomli.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["name"] == package.name
    assert (package / "src" / package.name.replace("-", "_") / "py.typed").is_file()


def test_configuration_knows_every_package() -> None:
    """Import contracts, coverage and mypy name the packages that exist."""
    assert CONFIGURATION["importlinter"]["root_packages"] == MODULES
    assert CONFIGURATION["coverage"]["run"]["source_pkgs"] == MODULES
    assert [path for path in CONFIGURATION["mypy"]["mypy_path"] if path.startswith("packages/")] == [
        f"packages/{name}/src" for name in NAMES
    ]
