"""The tests of every package on the torch, Lightning and DeepSpeed of a SynapseAI release, or on the oldest of each.

`tests` without arguments is the default row, so the cells of the other rows are no parameters of it, which nox would
all run: each is a session of its own that is named as such a parameter would be.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.version import Version

from sessions.environments import (
    OLDEST_PYTHON,
    chosen,
    install_alone,
    is_installed,
    own_machine,
    removed_afterwards,
    whatever_others_warn_of,
)
from sessions.packages import PACKAGES, ROOT, Package, group, own_group
from sessions.testing import SIDE_BY_SIDE, suite_paths

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


@dataclass(frozen=True)
class Row:
    """A SynapseAI release whose torch is on the package index.

    Attributes:
        release: "1.18.0".
        torch: Its version.
        pythons: Those that the release's sources name; none where they name none.
        deepspeed: The version that the vendor's fork starts from; None where no source names it.
    """

    release: str
    torch: str
    pythons: tuple[str, ...]
    deepspeed: str | None

    @property
    def constraints(self) -> str:
        """The file with the release's torch and Lightning."""
        return f"constraints/sim-{self.release}.txt"

    @functools.cached_property
    def python(self) -> str | None:
        """The release's Python that is installed here, the newest; None for the one that runs nox.

        That is taken where the release has it or where there is none of the release's own.
        """
        running = ".".join(map(str, sys.version_info[:2]))
        supported = sorted((v for v in map(Version, self.pythons) if v >= Version(OLDEST_PYTHON)), reverse=True)
        if Version(running) in supported:
            return None
        return next((str(version) for version in supported if is_installed(str(version))), None)


def read_rows(table: dict[str, Any]) -> dict[str, Row]:
    """Give the rows of compat.toml that can be installed, by release."""
    return {
        row["release"]: Row(
            release=row["release"],
            torch=row["torch"],
            pythons=tuple(row.get("python", ())),
            # Of the fork there are no builds on an index; DeepSpeed's own release of the same number is nearest.
            deepspeed=Version(row["deepspeed"]).base_version if "deepspeed" in row else None,
        )
        for row in table["release"]
        if "torch" in row
    }


TABLE = nox.project.load_toml(ROOT / "compat.toml")
ROWS = read_rows(TABLE)
# What `nox -t matrix` runs: of the releases that share a torch, one.
RUN = [ROWS[release] for release in TABLE["matrix"]["releases"]]
# The tools of the tests as everywhere; the rest of the default's pins is of a newer time than a row.
TOOLS = [pin for pin in TABLE["default"]["pins"] if Requirement(pin).name in group("test")]


def deepspeeds(package: Package) -> SpecifierSet | None:
    """Give which DeepSpeeds a package is for; None for one whose tests are not of what DeepSpeed does."""
    extra = map(Requirement, package.dependencies.get("deepspeed", ()))
    return next((requirement.specifier for requirement in extra if requirement.name == "deepspeed"), None)


def needs_deepspeed(package: Package) -> bool:
    """Tell whether a package's tests are of what DeepSpeed does."""
    return deepspeeds(package) is not None


# What brings most from the index comes last, because it stays in the environment.
IN_ORDER = sorted(PACKAGES, key=lambda name: needs_deepspeed(PACKAGES[name]))


def why_not(package: Package, row: Row) -> str | None:
    """Say why a package cannot be tested on a row, or None."""
    admitted = deepspeeds(package)
    if admitted is None:
        return None
    if row.deepspeed is None:
        return f"no source names the DeepSpeed of SynapseAI {row.release}"
    if row.deepspeed not in admitted:
        return f"DeepSpeed's own {row.deepspeed} knows no Gaudi, and Intel's fork of it is on no package index"
    return None


def requirements(package: Package, row: Row) -> list[str]:
    """Give what a package's tests need on a row."""
    deepspeed = [f"deepspeed=={row.deepspeed}"] if needs_deepspeed(package) else []
    return [package.name, *own_group(package), *TOOLS, *deepspeed]


def run_on(row: Row, session: nox.Session, *arguments: str) -> None:
    """Run tests on a row whose distributions are installed.

    Args:
        row: The row.
        session: The running session.
        *arguments: For pytest.

    Raises:
        CommandFailed: A test failed.
    """
    machine = own_machine(session) | whatever_others_warn_of()
    # The compiled device goes with the environment, as no other torch can use it.
    cache = str(Path(session.create_tmp()).resolve() / "hpu-sim")
    environment = machine | {"HPU_SIM_RELEASE": row.release, "HPU_SIM_CACHE": cache}
    session.run("pytest", *arguments, env=environment)


def everything(package: Package) -> list[str]:
    """Give pytest's arguments for all tests of a package."""
    return [*SIDE_BY_SIDE, *suite_paths(package.name)]


def add_cell(package: Package, row: Row) -> None:
    """Make the session for a package on a row."""

    @nox.session(name=f"tests({package.name}, {row.release})", python=row.python, default=False)
    def cell(session: nox.Session) -> None:
        """Run a package's tests on a SynapseAI release's torch, Lightning and DeepSpeed; arguments are pytest's."""
        if reason := why_not(package, row):
            session.skip(reason)
        with removed_afterwards(session):
            install_alone(session, row.constraints, *requirements(package, row))
            run_on(row, session, *(session.posargs or everything(package)))


for _row in ROWS.values():
    for _package in PACKAGES.values():
        add_cell(_package, _row)


@nox.session(default=False, python=OLDEST_PYTHON if is_installed(OLDEST_PYTHON) else None)
def floors(session: nox.Session) -> None:
    """Run the tests of all packages with the lowest versions that they declare; `-- hpu-core` chooses."""
    file = str(Path(session.create_tmp()).resolve() / "floors.txt")
    session.install(*group("constraints"))
    session.run_install("python", "scripts/floors.py", file)
    failed = []
    with removed_afterwards(session):
        for package in (PACKAGES[name] for name in chosen(session, IN_ORDER)):
            install_alone(session, file, package.name, *own_group(package), *TOOLS)
            try:
                environment = own_machine(session) | whatever_others_warn_of()
                session.run("pytest", *everything(package), env=environment)
            except CommandFailed:
                failed.append(package.name)
    if failed:
        session.error(f"tests of {', '.join(failed)} failed with the lowest versions that are declared")


@nox.session(default=False, tags=["matrix"])
@nox.parametrize(("python", "row"), [nox.param(row.python, row, id=row.release) for row in RUN])
def matrix(session: nox.Session, row: Row) -> None:
    """Run the tests of all packages on a SynapseAI release, one after the other, and note it in docs/matrix.json."""
    with removed_afterwards(session):
        try:
            session.install("--no-cache-dir", "-c", row.constraints, "torch")
        except CommandFailed:
            for name in IN_ORDER:
                note(session, PACKAGES[name], row, "--skipped", f"pip installs no torch {row.torch} for this Python")
            session.skip(f"pip installs no torch {row.torch} for this Python")
        failed = [name for name in chosen(session, IN_ORDER) if not noted(session, PACKAGES[name], row)]
    if failed:
        session.error(f"tests of {', '.join(failed)} failed on SynapseAI {row.release}")


@nox.session(default=False, tags=["matrix"])
def matrix_table(session: nox.Session) -> None:
    """Print what is in docs/matrix.json as one table, and write docs/matrix.md."""
    session.install("-c", "constraints/default.txt", *group("constraints"), "rich")
    session.run("python", "scripts/matrix.py", "show")


def noted(session: nox.Session, package: Package, row: Row) -> bool:
    """Run a package's tests on a row, if it has what they need, and note what comes of it.

    Returns:
        Whether nothing failed.
    """
    if reason := why_not(package, row):
        note(session, package, row, "--skipped", reason)
        return True
    report = Path(session.create_tmp()).resolve() / f"{package.name}.xml"
    report.unlink(missing_ok=True)
    try:
        install_alone(session, row.constraints, *requirements(package, row))
    except CommandFailed:
        note(session, package, row, "--failed", "pip could not install what the tests need")
        return False
    try:
        run_on(row, session, f"--junitxml={report}", *everything(package))
    except CommandFailed:
        session.warn(f"tests of {package.name} failed on SynapseAI {row.release}")
        return False
    finally:
        note(session, package, row, "--report", str(report))
    return True


def note(session: nox.Session, package: Package, row: Row, *outcome: str) -> None:
    """Write a cell to docs/matrix.json, with the versions that are installed."""
    place = ("--release", row.release, "--package", package.name)
    session.run("python", "scripts/matrix.py", "note", *place, *outcome)
