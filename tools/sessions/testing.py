"""Tests: a suite per package with only the packages that it requires, and one for all packages."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import nox

from sessions.environments import add_startup_line, install_shared, share_libraries, share_packages
from sessions.packages import PACKAGES, ROOT, group, parametrize, test_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Id of the suite in the root's tests/, with every package installed.
INTEGRATION = "integration"
# Tests start some 250 processes that import torch and Lightning. Python spends half of each process on traversing what
# was imported, for garbage that is not there. `nox -s slow` keeps Python's settings.
_COLLECT_LESS = "import atexit, gc; gc.set_threshold(100_000); atexit.register(gc.freeze)"
_COMPILE = "from hpu_sim.device.build import ensure_built; ensure_built()"
# pytest-timeout interrupts Python alone. A test that holds the GIL for longer than the longest limit of a test ends its
# suite, with the lines of all threads.
_LIMIT_OF_HANGS = ("-o", "faulthandler_timeout=1000", "-o", "faulthandler_exit_on_timeout=true")
per_suite = parametrize("suite", (nox.param(name, id=name) for name in (*PACKAGES, INTEGRATION)))

# A process that a test leaves keeps a suite's output open for ever.
_SECONDS_OF_LAST_LINES = 20
# How many suites run side by side, for a machine of two cores: in most suites, ranks wait for each other.
_SIDE_BY_SIDE = 5
# The suites that take longest, which start first, so that no core is left without work at the end. Two of the first
# four need the simulated device at once, and wait until one of them has compiled it; the other two do not.
_LONGEST = (
    "hpu-sim",
    "hpu-deepspeed",
    "hpu-core",
    INTEGRATION,
    "hpu-ddp",
    "hpu-fsdp",
    "hpu-doctor",
    "hpu-precision",
    "hpu-profiler",
    "hpu-compile",
)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all suites, a few side by side; `-- --quick` skips tests that start processes, `--random-order` shuffles."""
    # Once, before the suites need it.
    share_libraries(session)
    share_packages(session)
    suites = dict.fromkeys([*_LONGEST, *PACKAGES])
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as executor:
        codes = dict(zip(suites, executor.map(lambda suite: _run_suite(suite, session.posargs), suites), strict=True))
    if failed := [suite for suite, code in codes.items() if code]:
        session.error(f"failed: {', '.join(failed)}")


@nox.session(default=False)
@per_suite
def suite(session: nox.Session, suite: str) -> None:
    """Run the tests of one suite, "suite(hpu-core)"; arguments after `--` are pytest's."""
    shuffled = any(argument.startswith("--random-order") for argument in session.posargs)
    install_suite(session, suite, *(group("shuffle") if shuffled else ()))
    add_startup_line(session, "collect_less", _COLLECT_LESS)
    # Suites and ranks share the cores. A thread of OpenMP that waits for another one keeps a core busy.
    session.env["OMP_NUM_THREADS"] = "1"
    # torch asks for the name of each address that it connects to. An answer that gets lost takes five seconds.
    session.env["RES_OPTIONS"] = "timeout:1 attempts:1"
    # It takes a minute or two the first time, for which no test has the time.
    session.run("python", "-c", _COMPILE, silent=True)
    options_of_runs = all(argument.startswith(("--quick", "--random-order")) for argument in session.posargs)
    paths = suite_paths(suite) if options_of_runs else ()
    session.run("pytest", *_LIMIT_OF_HANGS, *session.posargs, *paths)


@nox.session(default=False)
@per_suite
def coverage(session: nox.Session, suite: str) -> None:
    """Run the same tests and report the branches that none of them takes; "coverage(hpu-core)" one suite."""
    install_suite(session, suite, *group("coverage"))
    # Not in the checkout, where a fixture takes the files of a test's processes for what the test has left.
    session.env["COVERAGE_FILE"] = str(Path(session.create_tmp(), ".coverage"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *(session.posargs or suite_paths(suite)))
    session.run("coverage", "combine")
    # A package's tests also reach code of other packages, which has its own.
    sources = "packages" if suite == INTEGRATION else str(PACKAGES[suite].path)
    session.run("coverage", "report", f"--include={sources}/*")


def install_suite(session: nox.Session, suite: str, *more: str) -> None:
    """Install what a suite requires; of this repository's packages nothing else."""
    if suite == INTEGRATION:
        names = ("test", "demo", "constraints", "docs_runner", "release", "ray")
        grouped = [requirement for name in names for requirement in group(name)]
        requirements = [*PACKAGES, "hpu-deepspeed[deepspeed]", "jsonargparse[signatures]", *grouped]
    else:
        requirements = [suite, *group("test"), *test_requirements(PACKAGES[suite])]
    install_shared(session, *requirements, *more)


def suite_paths(suite: str) -> list[str]:
    """Return what pytest collects for a suite."""
    return ["tests"] if suite == INTEGRATION else ["--doctest-modules", *PACKAGES[suite].tests]


def _run_suite(suite: str, arguments: Sequence[str]) -> int:
    """Run a suite in a process of its own, print its output as it comes, and return the exit code."""
    command = [sys.executable, "-m", "nox", *_options_of_nox(), "-s", f"suite({suite})", "--", *arguments]
    process = subprocess.Popen(  # noqa: S603 - nox itself.
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    printing = threading.Thread(target=_print_lines, args=(process.stdout,), daemon=True)
    printing.start()
    code = process.wait()
    printing.join(_SECONDS_OF_LAST_LINES)
    if printing.is_alive():
        print(f"{suite}: a test left a process, which keeps the output open", flush=True)
        return code or 1
    return code


def _print_lines(lines: Iterable[str] | None) -> None:
    for line in lines or ():
        print(line, end="", flush=True)


def _options_of_nox() -> list[str]:
    """Return the options of this run of nox, such as `-R`, without those that name sessions."""
    options, names_session = [], False
    for argument in itertools.takewhile("--".__ne__, sys.argv[1:]):
        is_option = argument.startswith("-")
        names_session = argument in {"-s", "-e", "--session", "--sessions"} or (names_session and not is_option)
        if not names_session:
            options.append(argument)
    return options
