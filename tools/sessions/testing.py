"""Tests: a suite per package with only the packages that it requires, and one for all packages."""

from __future__ import annotations

import nox

from sessions.environments import add_startup_line, install, share_libraries
from sessions.packages import PACKAGES, ROOT, group, parametrize, test_requirements

# Id of the suite in the root's tests/, with every package installed.
INTEGRATION = "integration"
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
    arguments = [*xdist_options(suite), *suite_paths(suite)]
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
        grouped = [requirement for name in names for requirement in group(name)]
        requirements = [*PACKAGES, "hpu-deepspeed[deepspeed]", "jsonargparse[signatures]", *grouped]
    else:
        requirements = [suite, *group("test"), *test_requirements(PACKAGES[suite])]
    # The shared libraries have the build backend.
    install(session, *requirements, *more, options=["--no-build-isolation"])


def xdist_options(suite: str) -> list[str]:
    """Return how pytest distributes a suite over processes, for a machine of two cores.

    A process more pays where ranks of a pool wait for each other, and costs seconds: each imports torch and Lightning.
    """
    folder = ROOT / ("tests" if suite == INTEGRATION else PACKAGES[suite].path / "tests")
    has_pool = any("on_ranks" in file.read_text(encoding="utf-8") for file in folder.rglob("test_*.py"))
    # conftest.py says more of which tests stay in one process. By default, xdist starts files with few tests last, and
    # the few tests of several ranks are the longest.
    return [f"--numprocesses={3 if has_pool else 2}", "--dist=loadfile", "--no-loadscope-reorder"]


def suite_paths(suite: str) -> list[str]:
    """Return what pytest collects for a suite."""
    return ["tests"] if suite == INTEGRATION else ["--doctest-modules", *PACKAGES[suite].tests]
