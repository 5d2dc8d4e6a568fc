"""Releases: their checks and their commits."""

from __future__ import annotations

from pathlib import Path

import nox
from packaging.requirements import Requirement

from sessions.environments import DEFAULT_CONSTRAINTS, install, uninstall_packages
from sessions.packages import PACKAGES, ROOT, Package, group, per_package, resolve_packages

SCRIPT = "tools/release.py"


@nox.session(default=False)
@per_package
def release(session: nox.Session, package: Package) -> None:
    """Check a release and commit it on this branch: "release(hpu-core)" `-- minor` (or major, patch, 1.2.3)."""
    install(session, *group("release"))
    session.run("python", SCRIPT, "check", package.name, *session.posargs)
    check_oldest_peers(session, package)
    check_dependents(session, package)
    install(session, *group("release"))
    session.run("python", SCRIPT, "make", package.name, *session.posargs)


@nox.session(default=False)
@per_package
def release_check(session: nox.Session, package: Package) -> None:
    """Check a tag that is to be published: "release_check(hpu-core)" `-- hpu-core-v1.2.0`."""
    install(session, *group("release"))
    session.run("python", SCRIPT, "check-tag", package.name, *session.posargs)
    check_oldest_peers(session, package)


@nox.session(default=False)
@per_package
def dependents(session: nox.Session, package: Package) -> None:
    """Check the last release of each package that requires one, from its commit, with this checkout's."""
    install(session, *group("release"))
    check_dependents(session, package)


def check_oldest_peers(session: nox.Session, package: Package) -> None:
    """Check a package with the oldest release of each package that it requires."""
    if peers := _requirements(session, "oldest-peers", package):
        session.log(f"{package.name} with the oldest releases that it admits: {', '.join(peers)}")
        extras = f"[{','.join(package.extras)}]" if package.extras else ""
        _check(session, package, ROOT / package.path, *peers, f"./{package.path}{extras}", complete=True)


def check_dependents(session: nox.Session, package: Package) -> None:
    """Check the last release of each package that requires a given one with this checkout's."""
    for requirement in _requirements(session, "last-dependents", package):
        dependent = PACKAGES[Requirement(requirement).name]
        session.log(f"{requirement} with {package.name} of this checkout")
        commit = requirement.partition("@ git+")[2].rpartition("@")[2].partition("#")[0]
        folder = Path(session.create_tmp()).resolve() / commit
        folder.mkdir(exist_ok=True)
        archive = str(folder / "archive.tar")
        session.run("git", "archive", "--output", archive, commit, str(dependent.path), external=True)
        session.run("tar", "-xf", archive, "-C", str(folder), external=True)
        # What it requires besides comes from this checkout too.
        others = [f"./{other.path}" for other in resolve_packages([dependent.name]) if other is not dependent]
        extra = "[lightning]" if "lightning" in dependent.extras else ""
        _check(session, dependent, folder / dependent.path, *others, f"{folder / dependent.path}{extra}")


def _requirements(session: nox.Session, command: str, package: Package) -> list[str]:
    output = session.run("python", SCRIPT, command, package.name, silent=True, log=False)
    return [line for line in str(output).splitlines() if line]


def _check(session: nox.Session, package: Package, folder: Path, *requirements: str, complete: bool = False) -> None:
    """Install requirements, and check the types and imports of a package, whose folder is given."""
    source = folder / "src"
    uninstall_packages(session)
    session.install("-c", DEFAULT_CONSTRAINTS, "mypy", *requirements)
    script = str(ROOT / "tools" / "import_every_module.py")
    # Outside the checkout, whose configuration leads mypy to the peers in the checkout.
    with session.chdir(session.create_tmp()):
        # An ignore may be needed with another release of a peer only.
        options = ("--config-file", str(ROOT / "pyproject.toml"), "--no-warn-unused-ignores", str(source))
        session.run("mypy", *options, env={"MYPYPATH": str(source)})
        for module in package.modules:
            session.run("python", "-I", script, module, *(["--complete"] if complete else []))
