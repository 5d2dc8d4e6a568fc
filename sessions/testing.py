"""The tests, a session per package with only its declared siblings installed, and those of all packages together."""

from __future__ import annotations

import nox

from sessions.environments import install
from sessions.packages import PACKAGES, group, own_group

# The id under which `tests` runs the root's tests/, with every package installed.
TOGETHER = "together"
# Two processors are shared by the tests, but those of a file stay together, because they share what is costly to start.
SIDE_BY_SIDE = ("--numprocesses=2", "--dist=loadfile")
each_suite = nox.parametrize(
    "suite",
    [
        *(nox.param(name, id=name) for name in PACKAGES),
        nox.param(TOGETHER, id=TOGETHER),
    ],
)


@nox.session
@each_suite
def tests(session: nox.Session, suite: str) -> None:
    """Run a package's tests with only its declared siblings installed, or ("together") the root's with all."""
    install_suite(session, suite)
    session.run("pytest", *(session.posargs or [*SIDE_BY_SIDE, *suite_paths(suite)]))


@nox.session(default=False)
@each_suite
def coverage(session: nox.Session, suite: str) -> None:
    """Run the same tests and report the branches that none of them takes."""
    install_suite(session, suite, *group("coverage"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *(session.posargs or suite_paths(suite)))
    session.run("coverage", "combine")
    # What a package's tests reach of its siblings is none of their business.
    sources = "packages" if suite == TOGETHER else str(PACKAGES[suite].path)
    session.run("coverage", "report", f"--include={sources}/*")


def install_suite(session: nox.Session, suite: str, *more: str) -> None:
    """Install what a suite of tests may use and nothing else."""
    if suite == TOGETHER:
        groups = (*group("test"), *group("demo"), *group("constraints"), *group("docs_runner"), *group("release"))
        install(session, *PACKAGES, *groups, *more)
    else:
        install(session, suite, *group("test"), *own_group(PACKAGES[suite]), *more)


def suite_paths(suite: str) -> list[str]:
    """Give what pytest collects for a suite."""
    return ["tests"] if suite == TOGETHER else ["--doctest-modules", *PACKAGES[suite].tests]
