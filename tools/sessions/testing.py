"""Tests: a suite per package with only the packages that it requires, and one for all packages."""

from __future__ import annotations

import nox

from sessions.environments import add_startup_line, install, share_libraries
from sessions.packages import PACKAGES, group, parametrize, test_requirements

# Id of the suite in the root's tests/, with every package installed.
INTEGRATION = "integration"
# One process more than the two cores of a small machine: tests of several ranks mostly wait. conftest.py says more of
# which tests stay in one process. By default, xdist starts files with few tests last, and the few tests of several
# ranks are the longest.
XDIST_OPTIONS = ("--numprocesses=3", "--dist=loadfile", "--no-loadscope-reorder")
# Tests start some 250 processes that import torch and Lightning. Python spends half of each process on traversing what
# was imported, for garbage that is not there. `nox -s slow` keeps Python's settings.
_COLLECT_LESS = "import atexit, gc; gc.set_threshold(100_000); atexit.register(gc.freeze)"
per_suite = parametrize("suite", (nox.param(name, id=name) for name in (*PACKAGES, INTEGRATION)))


@nox.session
@per_suite
def tests(session: nox.Session, suite: str) -> None:
    """Run the tests of all packages; "tests(hpu-core)" one suite; `-- --quick` skips those that start processes."""
    install_suite(session, suite)
    add_startup_line(session, "collect_less", _COLLECT_LESS)
    arguments = [*XDIST_OPTIONS, *suite_paths(suite)]
    if session.posargs == ["--quick"]:
        arguments.append("--quick")
    elif session.posargs:
        arguments = session.posargs
    session.run("pytest", *arguments)


@nox.session(default=False)
@per_suite
def coverage(session: nox.Session, suite: str) -> None:
    """Run the same tests and report the branches that none of them takes; "coverage(hpu-core)" one suite."""
    install_suite(session, suite, *group("coverage"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *(session.posargs or suite_paths(suite)))
    session.run("coverage", "combine")
    # A package's tests also reach code of other packages, which has its own.
    sources = "packages" if suite == INTEGRATION else str(PACKAGES[suite].path)
    session.run("coverage", "report", f"--include={sources}/*")


def install_suite(session: nox.Session, suite: str, *more: str) -> None:
    """Install what a suite requires; of this repository's packages nothing else."""
    share_libraries(session)
    if suite == INTEGRATION:
        names = ("test", "demo", "constraints", "docs_runner", "release", "ray")
        requirements = [*PACKAGES, *(requirement for name in names for requirement in group(name))]
    else:
        requirements = [suite, *group("test"), *test_requirements(PACKAGES[suite])]
    # The shared libraries have the build backend.
    install(session, *requirements, *more, options=["--no-build-isolation"])


def suite_paths(suite: str) -> list[str]:
    """Return what pytest collects for a suite."""
    return ["tests"] if suite == INTEGRATION else ["--doctest-modules", *PACKAGES[suite].tests]
