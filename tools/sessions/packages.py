"""Packages of this repository and dependency groups, as the pyproject.toml files declare them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT = Path(__file__).resolve().parents[2]
# `nox -l` prints one line per session and not one per parameter.
IS_LISTING = not {"-l", "--list", "--list-sessions"}.isdisjoint(sys.argv)


@dataclass(frozen=True)
class Package:
    """A folder under packages/.

    Attributes:
        name: The distribution, "hpu-core".
        modules: The import packages; the first has the distribution's name.
        path: The folder, relative to the root.
        extras: Names of the optional dependency groups.
        dependencies: Requirements by extra; "" holds the unconditional ones.
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
        """Paths for pytest: the tests, and the source for its doctests."""
        return [f"{self.path}/tests", f"{self.path}/src"]

    @property
    def top_level(self) -> list[str]:
        """What a wheel installs: import packages, and files of modules outside of them."""
        source = ROOT / self.path / "src"
        return [*self.modules, *sorted(file.name for file in source.glob("*.py"))]

    @property
    def benchmarks(self) -> list[Path]:
        """Scripts that time the package."""
        return sorted(self.path.glob("bench/*.py"))


def read_packages() -> dict[str, Package]:
    """Return the packages of packages/*/pyproject.toml by name, in alphabetical order."""
    packages = {}
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        content = nox.project.load_toml(file)
        project = content["project"]
        extras = project.get("optional-dependencies", {})
        main_module = project["name"].replace("-", "_")
        modules = {path.parent.name for path in file.parent.glob("src/*/__init__.py")}
        packages[project["name"]] = Package(
            name=project["name"],
            modules=(main_module, *sorted(modules - {main_module})),
            path=file.parent.relative_to(ROOT),
            extras=tuple(extras),
            dependencies={"": project["dependencies"], **extras},
            groups=content.get("dependency-groups", {}),
        )
    return packages


def parametrize(names: str | Sequence[str], params: Iterable[Any]) -> Callable[[Any], Any]:
    """Return `nox.parametrize`, or a decorator that does nothing for `nox -l`."""
    return (lambda session: session) if IS_LISTING else nox.parametrize(names, list(params))


PACKAGES = read_packages()
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
per_package = parametrize("package", (nox.param(package, id=name) for name, package in PACKAGES.items()))


def group(name: str) -> list[str]:
    """Return the requirements of one of the root's dependency groups."""
    return list(nox.project.dependency_groups(PROJECT, name))


def test_requirements(*packages: Package) -> list[str]:
    """Return what the tests of packages need beyond the root's group "test"."""
    return [requirement for package in packages for requirement in package.groups.get("test", [])]


def resolve_packages(names: Iterable[str], extras: Iterable[str] = ()) -> list[Package]:
    """Return packages of this repository and those that they require, directly or not.

    Args:
        names: Distributions; others than those of this repository are ignored.
        extras: Extras of the named packages whose requirements count as well.

    Returns:
        Each package once, after those that require it.
    """
    found: dict[str, Package] = {}
    for name in names:
        package = PACKAGES.get(name)
        if package is None or name in found:
            continue
        found[name] = package
        for extra in ("", *extras):
            for requirement in map(Requirement, package.dependencies.get(extra, [])):
                for required in resolve_packages([requirement.name], requirement.extras):
                    found.setdefault(required.name, required)
    return list(found.values())
