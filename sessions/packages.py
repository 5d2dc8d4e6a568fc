"""What the pyprojects say: which packages there are, what they require of each other, and the groups of tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Package:
    """One folder under packages/.

    Attributes:
        name: The distribution, "hpu-core".
        modules: The import packages: "hpu_core", which holds the version, and others, if any.
        path: The folder, relative to the root.
        extras: Names of the optional dependency groups.
        dependencies: Requirements, by extra; "" holds the unconditional ones.
        groups: The package's own dependency groups.
    """

    name: str
    modules: tuple[str, ...]
    path: Path
    extras: tuple[str, ...]
    dependencies: dict[str, list[str]]
    groups: dict[str, Any]

    @property
    def tests(self) -> list[str]:
        """What pytest is given: the tests, and the source for its doctests."""
        return [f"{self.path}/tests", f"{self.path}/src"]

    @property
    def benches(self) -> list[Path]:
        """The scripts that time this package."""
        return sorted(self.path.glob("bench/*.py"))


def read_packages() -> dict[str, Package]:
    """Read packages/*/pyproject.toml.

    Returns:
        The packages by name, in alphabetical order.
    """
    packages = {}
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        content = nox.project.load_toml(file)
        project = content["project"]
        extras = project.get("optional-dependencies", {})
        packages[project["name"]] = Package(
            name=project["name"],
            modules=read_modules(file.parent, project["name"]),
            path=file.parent.relative_to(ROOT),
            extras=tuple(extras),
            dependencies={"": project["dependencies"], **extras},
            groups=content.get("dependency-groups", {}),
        )
    return packages


def read_modules(folder: Path, distribution: str) -> tuple[str, ...]:
    """Find a distribution's import packages, of which the one with its own name is the first."""
    own = distribution.replace("-", "_")
    found = sorted(path.parent.name for path in folder.glob("src/*/__init__.py"))
    return (own, *(name for name in found if name != own))


PACKAGES = read_packages()
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")
each_package = nox.parametrize("package", [nox.param(package, id=name) for name, package in PACKAGES.items()])


def group(name: str) -> list[str]:
    """Give the requirements of one of the root's dependency groups."""
    return list(nox.project.dependency_groups(GROUPS, name))


def own_group(package: Package) -> list[str]:
    """Give what a package's tests need beyond the root's group "test"."""
    return list(package.groups.get("test", []))


def closure(names: Iterable[str], extras: Iterable[str] = ()) -> list[Package]:
    """Give the named packages and every sibling that they require, directly or not.

    Args:
        names: Distributions; those that are not in this repository are passed over.
        extras: Extras of the named packages whose requirements count as well.

    Returns:
        Each package once, a requiring one before what it requires.
    """
    found: dict[str, Package] = {}
    for name in names:
        package = PACKAGES.get(name)
        if package is None or name in found:
            continue
        found[name] = package
        for extra in ("", *extras):
            for text in package.dependencies.get(extra, []):
                requirement = Requirement(text)
                for sibling in closure([requirement.name], requirement.extras):
                    found.setdefault(sibling.name, sibling)
    return list(found.values())


def read_version(package: Package) -> str:
    """Read a package's version without importing it."""
    about = ROOT / package.path / "src" / package.modules[0] / "__about__.py"
    (version,) = re.findall(r'^__version__ = "(.+)"$', about.read_text(encoding="utf-8"), re.MULTILINE)
    return str(version)
