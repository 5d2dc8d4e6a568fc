"""Tests on the torch, Lightning and DeepSpeed of a SynapseAI release, a row of compat.toml, or on the lowest of each.

`nox -s tests` runs all parameters of `tests`, and only the default versions are meant by it. So a package on a row is a
session of its own, with a name like that of a parameter.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sessions.environments import (
    DEFAULT_CONSTRAINTS,
    MIN_PYTHON,
    is_installed,
    isolated_sim_env,
    reinstall,
    select,
    temporary_venv,
    warnings_ignored,
)
from sessions.packages import IS_LISTING, PACKAGES, ROOT, Package, group, parametrize, test_requirements
from sessions.testing import XDIST_OPTIONS, suite_paths


@dataclass(frozen=True)
class Row:
    """A SynapseAI release whose torch is on the package index.

    Attributes:
        release: "1.18.0".
        torch: Its version.
        pythons: Those that the release's sources name.
        lightning: Range of versions that the sources name; empty where none does.
        deepspeed: Version that the vendor's fork starts from; None where no source names it.
    """

    release: str
    torch: str
    pythons: tuple[str, ...]
    lightning: str
    deepspeed: str | None

    @property
    def constraints(self) -> str:
        """The file with the release's torch and Lightning."""
        return f"constraints/sim-{self.release}.txt"

    @functools.cached_property
    def python(self) -> str | None:
        """The newest installed Python of the release.

        None stands for the Python that runs nox, which is taken if the release has it or if none of its own is here.
        """
        current = ".".join(map(str, sys.version_info[:2]))
        supported = sorted((v for v in map(Version, self.pythons) if v >= Version(MIN_PYTHON)), reverse=True)
        if Version(current) in supported:
            return None
        return next((str(version) for version in supported if is_installed(str(version))), None)


def read_rows(table: dict[str, Any]) -> dict[str, Row]:
    """Return the rows of compat.toml that can be installed, by release."""
    return {
        row["release"]: Row(
            release=row["release"],
            torch=row["torch"],
            pythons=tuple(row.get("python", ())),
            lightning=row.get("lightning", ""),
            # The fork is not on an index; DeepSpeed's own release of the same number is the nearest.
            deepspeed=Version(row["deepspeed"]).base_version if "deepspeed" in row else None,
        )
        for row in table["release"]
        if "torch" in row
    }


TABLE = nox.project.load_toml(ROOT / "compat.toml")
ROWS = read_rows(TABLE)
MATRIX_ROWS = [ROWS[release] for release in TABLE["matrix"]["releases"]]
# Tools of the tests have their default versions; the other default pins are too new for a row.
TOOLS = [pin for pin in TABLE["default"]["pins"] if Requirement(pin).name in group("test")]


def deepspeed_range(package: Package) -> SpecifierSet | None:
    """Return the DeepSpeed versions that a package admits; None for a package that does not use DeepSpeed."""
    extra = map(Requirement, package.dependencies.get("deepspeed", ()))
    return next((requirement.specifier for requirement in extra if requirement.name == "deepspeed"), None)


# DeepSpeed is a large download and stays in the environment, so packages that use it come last.
INSTALL_ORDER = sorted(PACKAGES, key=lambda name: deepspeed_range(PACKAGES[name]) is not None)


def has_fsdp(row: Row) -> bool:
    """Return whether a Lightning of the row's range is one that hpu-fsdp supports."""
    lightnings = [*TABLE["minors"]["lightning"], TABLE["default"]["lightning"]]
    needed = SpecifierSet(TABLE["sharding"]["FSDP"]["lightning"]) & SpecifierSet(row.lightning)
    return any(version in needed for version in lightnings)


def skip_reason(package: Package, row: Row) -> str | None:
    """Return why a package cannot be tested on a row, or None."""
    if package.name == "hpu-fsdp" and not has_fsdp(row):
        return f"hpu-fsdp needs Lightning {TABLE['sharding']['FSDP']['lightning']}"
    supported = deepspeed_range(package)
    if supported is None:
        return None
    if row.deepspeed is None:
        return f"no source names the DeepSpeed of SynapseAI {row.release}"
    if row.deepspeed not in supported:
        return f"DeepSpeed {row.deepspeed} does not support Gaudi, and Intel's fork is not on a package index"
    return None


def install_on(session: nox.Session, row: Row, package: Package) -> None:
    """Install what a package's tests need on a row."""
    deepspeed = [f"deepspeed=={row.deepspeed}"] if deepspeed_range(package) is not None else []
    reinstall(session, row.constraints, package.name, *test_requirements(package), *TOOLS, *deepspeed)


def run_on(session: nox.Session, row: Row, *arguments: str) -> None:
    """Run pytest on a row whose distributions are installed.

    Raises:
        CommandFailed: A test failed.
    """
    # The compiled device is removed with the environment, because no other torch can use it.
    cache = str(Path(session.create_tmp()).resolve() / "hpu-sim")
    env = isolated_sim_env(session) | warnings_ignored() | {"HPU_SIM_RELEASE": row.release, "HPU_SIM_CACHE": cache}
    session.run("pytest", *arguments, env=env)


def all_tests(package: Package) -> list[str]:
    """Return pytest's arguments for all tests of a package."""
    return [*XDIST_OPTIONS, *suite_paths(package.name)]


def add_session(package: Package, row: Row) -> None:
    """Register the session for a package on a row."""

    @nox.session(name=f"tests({package.name}, {row.release})", python=row.python, default=False)
    def tests_on_row(session: nox.Session) -> None:
        """Run a package's tests on the versions of a SynapseAI release; arguments are pytest's."""
        if reason := skip_reason(package, row):
            session.skip(reason)
        with temporary_venv(session):
            install_on(session, row, package)
            run_on(session, row, *(session.posargs or all_tests(package)))


if not IS_LISTING:
    for _row in ROWS.values():
        for _package in PACKAGES.values():
            add_session(_package, _row)


@nox.session(default=False, python=MIN_PYTHON if is_installed(MIN_PYTHON) else None)
def lowest_versions(session: nox.Session) -> None:
    """Run the tests of all packages with the lowest versions that they declare; `-- hpu-core` selects packages."""
    file = str(Path(session.create_tmp()).resolve() / "lowest.txt")
    session.install("-c", DEFAULT_CONSTRAINTS, *group("lowest_versions"))
    session.run_install("python", "scripts/lowest_constraints.py", file)
    failed = []
    with temporary_venv(session):
        for package in (PACKAGES[name] for name in select(session, INSTALL_ORDER)):
            reinstall(session, file, package.name, *test_requirements(package), *TOOLS)
            try:
                session.run("pytest", *all_tests(package), env=isolated_sim_env(session) | warnings_ignored())
            except CommandFailed:
                failed.append(package.name)
    if failed:
        session.error(f"tests of {', '.join(failed)} failed with the lowest declared versions")


@nox.session(default=False, tags=["matrix"])
@parametrize(("python", "row"), (nox.param(row.python, row, id=row.release) for row in MATRIX_ROWS))
def matrix(session: nox.Session, row: Row) -> None:
    """Run the tests of all packages on some SynapseAI releases, into docs/matrix.json; "matrix(1.18.0)" on one."""
    with temporary_venv(session):
        try:
            session.install("--no-cache-dir", "-c", row.constraints, "torch")
        except CommandFailed:
            reason = f"pip installs no torch {row.torch} for this Python"
            for name in INSTALL_ORDER:
                record_cell(session, PACKAGES[name], row, "--skipped", reason)
            session.skip(reason)
        failed = [name for name in select(session, INSTALL_ORDER) if not run_cell(session, PACKAGES[name], row)]
    if failed:
        session.error(f"tests of {', '.join(failed)} failed on SynapseAI {row.release}")


@nox.session(default=False, tags=["matrix"])
def matrix_table(session: nox.Session) -> None:
    """Write docs/matrix.md, the table of what is in docs/matrix.json."""
    session.install("-c", DEFAULT_CONSTRAINTS, *group("constraints"))
    session.run("python", "scripts/matrix.py", "page")


def run_cell(session: nox.Session, package: Package, row: Row) -> bool:
    """Run a package's tests on a row and record the outcome; return whether nothing failed."""
    if reason := skip_reason(package, row):
        record_cell(session, package, row, "--skipped", reason)
        return True
    report = Path(session.create_tmp()).resolve() / f"{package.name}.xml"
    report.unlink(missing_ok=True)
    try:
        install_on(session, row, package)
    except CommandFailed:
        record_cell(session, package, row, "--failed", "pip could not install the requirements of the tests")
        return False
    try:
        run_on(session, row, f"--junitxml={report}", *all_tests(package))
    except CommandFailed:
        session.warn(f"tests of {package.name} failed on SynapseAI {row.release}")
        return False
    finally:
        record_cell(session, package, row, "--report", str(report))
    return True


def record_cell(session: nox.Session, package: Package, row: Row, *outcome: str) -> None:
    """Write a cell to docs/matrix.json, with the installed versions."""
    cell = ("--release", row.release, "--package", package.name)
    session.run("python", "scripts/matrix.py", "record", *cell, *outcome)
