"""What is built for the package index, and what becomes of it where it is installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import nox

from sessions.environments import DEFAULT_ROW, install
from sessions.packages import ROOT, Package, closure, each_package, group

if TYPE_CHECKING:
    from collections.abc import Iterable

DIST = ROOT / "dist"


@nox.session(default=False)
@each_package
def build(session: nox.Session, package: Package) -> None:
    """Build the sdist, the wheel from the sdist, and check both; the products lie in dist/<package>."""
    install(session, *group("build"))
    products = [str(product) for product in make_distributions(session, package, ROOT, DIST / package.name)]
    session.run("twine", "check", "--strict", *products)
    wheels = (product for product in products if product.endswith(".whl"))
    session.run("check-wheel-contents", "--toplevel", ",".join(package.modules), *wheels)


@nox.session(default=False)
@each_package
def reproducible(session: nox.Session, package: Package) -> None:
    """Build a package's last commit twice, as two people would on two machines, and compare the products' bytes."""
    install(session, *group("build"))
    digests = []
    with tempfile.TemporaryDirectory(prefix="reproducible-") as folder:
        for name, umask, zone in (("one", 0o022, "Pacific/Kiritimati"), ("another/place", 0o077, "America/St_Johns")):
            checkout = Path(folder, name)
            earlier = os.umask(umask)
            try:
                session.run("git", "clone", "--quiet", ROOT.as_uri(), str(checkout), external=True)
                products = make_distributions(session, package, checkout, checkout / "dist", TZ=zone)
            finally:
                os.umask(earlier)
            digests.append({product.name: hashlib.sha256(product.read_bytes()).hexdigest() for product in products})
    for product in sorted(digests[0] | digests[1]):
        one, another = (found.get(product, "missing") for found in digests)
        if one != another:
            session.error(f"{product} is not reproducible: its SHA-256 was {one}, then {another}")
        session.log(f"{product} twice the same: {one}")


# A fresh environment each time, because what an earlier run left behind is what this session looks for.
@nox.session(default=False, reuse_venv=False, requires=["build"])
@each_package
def isolation(session: nox.Session, package: Package) -> None:
    """Install a package's wheel alone and import every module of it, first without, then with its extras."""
    wheel = one_wheel(package)
    siblings = wheels_beside(package)
    script = str(ROOT / "scripts" / "import_every_module.py")
    # Far from the checkout, so that nothing but the wheel can answer an import.
    constraints = str(ROOT / DEFAULT_ROW)
    session.chdir(session.create_tmp())
    session.log(f"installing {wheel.name} alone")
    session.install("-c", constraints, str(wheel), *siblings)
    for module in package.modules:
        session.run("python", "-I", script, module)
    if package.extras:
        siblings = wheels_beside(package, package.extras)
        session.install("-c", constraints, f"{wheel}[{','.join(package.extras)}]", *siblings)
        for module in package.modules:
            session.run("python", "-I", script, module, "--complete")


@nox.session(default=False)
def constraints(session: nox.Session) -> None:
    """Generate constraints/, docs/compatibility.md and the packages' releases.json from compat.toml."""
    # Without constraints: they are what this session writes.
    session.install(*group("constraints"))
    session.run("python", "scripts/constraints.py", *session.posargs)


@nox.session(default=False)
def torch_stays(session: nox.Session) -> None:
    """Show for each SynapseAI release that no install of these packages replaces the torch of a Gaudi image."""
    session.install("-c", DEFAULT_ROW, *group("constraints"), "packaging")
    session.run("python", "scripts/torch_stays.py", *session.posargs)


def make_distributions(
    session: nox.Session, package: Package, checkout: Path, folder: Path, **environment: str
) -> list[Path]:
    """Build a package's sdist, and its wheel from the sdist, so that everybody gets the same bytes from a commit.

    Args:
        session: The running session, which has the group "build" installed.
        package: The package.
        checkout: The checkout to build from.
        folder: Where to; what is there goes.
        environment: More variables for the build.

    Returns:
        The products, in alphabetical order.
    """
    shutil.rmtree(folder, ignore_errors=True)
    # The commit's date, in seconds since 1970, becomes every file's.
    command = ("git", "-C", str(checkout), "log", "-1", "--format=%ct")
    date = str(session.run(*command, external=True, silent=True, log=False)).strip()
    # The constraints hold the build backend, too, which writes its own version into the wheel.
    held = {"SOURCE_DATE_EPOCH": date, "PIP_CONSTRAINT": str(ROOT / DEFAULT_ROW)} | environment
    source = checkout / package.path
    session.run("python", "-m", "build", "--outdir", str(folder), str(source), silent=True, env=held)
    return sorted(folder.iterdir())


def one_wheel(package: Package) -> Path:
    """Give the wheel that the build session made.

    Raises:
        FileNotFoundError: If there is none, or more than one.
    """
    wheels = list((DIST / package.name).glob("*.whl"))
    if len(wheels) != 1:
        raise FileNotFoundError(f"dist/{package.name} must hold one wheel, found {wheels}: nox -s build makes it")
    return wheels[0]


def wheels_beside(package: Package, extras: Iterable[str] = ()) -> list[str]:
    """Give the wheels of the siblings that a package requires, with some of its extras."""
    return [str(one_wheel(sibling)) for sibling in closure([package.name], extras) if sibling is not package]
