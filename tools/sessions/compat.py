"""Tests with other versions than the default: torches, Lightnings, SynapseAI releases."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.version import Version

import constraints
from sessions.environments import (
    MIN_PYTHON,
    WARNINGS_IGNORED,
    is_installed,
    isolated_sim_env,
    reinstall,
    select,
    temporary_venv,
)
from sessions.packages import PACKAGES, Package, group, parametrize, test_requirements
from sessions.testing import suite_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TABLE = constraints.load()
# Those whose torch is on a package index.
ROWS = [row for row in TABLE["release"] if "torch" in row]
# Tools of the tests have their default versions; the other default pins are too new for an old torch or Lightning.
TOOLS = [pin for pin in TABLE["default"]["pins"] if Requirement(pin).name in group("test")]
WITH_LIGHTNING = [name for name, package in PACKAGES.items() if "lightning" in package.extras]


def find_python(row: dict[str, Any]) -> str | None:
    """Return the newest installed Python that a release's sources name.

    None stands for the Python that runs nox, which is taken if the release has it or if none of its own is here.
    """
    current = Version(".".join(map(str, sys.version_info[:2])))
    supported = sorted((v for v in map(Version, row.get("python", ())) if v >= Version(MIN_PYTHON)), reverse=True)
    return None if current in supported else next((str(v) for v in supported if is_installed(str(v))), None)


per_torch = parametrize("torch", (nox.param(version, id=version) for version in TABLE["simulator"]["torch"]))
per_lightning = parametrize(
    ("lightning", "distribution"),
    [
        *(nox.param(version, "lightning", id=version) for version in TABLE["minors"]["lightning"]),
        # The default version as the framework's other distribution.
        nox.param(TABLE["default"]["lightning"], "pytorch-lightning", id="pytorch-lightning"),
    ],
)
per_release = parametrize(("python", "row"), (nox.param(find_python(row), row, id=row["release"]) for row in ROWS))


def write_constraints(session: nox.Session, lines: Iterable[str]) -> str:
    """Write a file of constraints for a session, and return its path."""
    file = Path(session.create_tmp()).resolve() / "constraints.txt"
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return str(file)


def run_suites(session: nox.Session, names: Iterable[str], install: Callable[[Package], None], **env: str) -> None:
    """Run the tests of several packages in one environment, and fail at the end if those of one failed."""
    failed = []
    # The compiled device is removed with the environment, because no other torch can use it.
    env = {"HPU_SIM_CACHE": str(Path(session.create_tmp()).resolve() / "hpu-sim")} | env
    with temporary_venv(session):
        for package in (PACKAGES[name] for name in select(session, names)):
            with contextlib.suppress(CommandFailed):
                install(package)
                command = ("pytest", *suite_paths(package.name))
                session.run(*command, env=isolated_sim_env(session) | WARNINGS_IGNORED | env)
                continue
            failed.append(package.name)
    if failed:
        session.error(f"tests of {', '.join(failed)} failed")


@nox.session(default=False)
@per_torch
def sim_torch(session: nox.Session, torch: str) -> None:
    """Test hpu-sim with other torches, gigabytes each, which are removed afterwards; "sim_torch(2.4.0)" runs one."""
    file = write_constraints(session, constraints.version_lines(TABLE, torch, None))
    run_suites(session, ["hpu-sim"], lambda package: reinstall(session, file, *needed(package), *group("test")))


@nox.session(default=False)
@per_lightning
def minors(session: nox.Session, lightning: str, distribution: str) -> None:
    """Test with other Lightnings; "minors(2.4.0)" with one; `-- hpu-core` selects packages, and keeps the venv."""
    file = write_constraints(session, constraints.version_lines(TABLE, TABLE["default"]["torch"], lightning))

    def install(package: Package) -> None:
        requirements = use_distribution(distribution, f"{package.name}[lightning]", *test_requirements(package))
        reinstall(session, file, *requirements, *group("test"))

    run_suites(session, WITH_LIGHTNING, install)


@nox.session(default=False)
@per_release
def matrix(session: nox.Session, row: dict[str, Any]) -> None:
    """Test on the torch, Lightning and DeepSpeed of SynapseAI releases; "matrix(1.18.0)" on one; `-- hpu-core`."""
    release = row["release"]
    file = write_constraints(session, [f"torch=={row['torch']}", *constraints.release_lines(TABLE, row)])

    def install(package: Package) -> None:
        deepspeed = [f"deepspeed=={base_deepspeed(row)}"] if deepspeed_ranges(package) else []
        reinstall(session, file, *needed(package), *TOOLS, *deepspeed)

    names = []
    # DeepSpeed is a large download and stays in the environment, so packages that use it come last.
    for name in sorted(PACKAGES, key=lambda name: bool(deepspeed_ranges(PACKAGES[name]))):
        if reason := skip_reason(PACKAGES[name], row):
            session.warn(f"{name} is not tested on SynapseAI {release}: {reason}")
        else:
            names.append(name)
    run_suites(session, names, install, HPU_SIM_RELEASE=release)


def needed(package: Package) -> Sequence[str]:
    """Return the package and what its tests require, without the tools of all tests."""
    return package.name, *test_requirements(package)


def deepspeed_ranges(package: Package) -> list[Requirement]:
    """Return what a package requires of DeepSpeed; nothing for a package that does not use it."""
    requirements = map(Requirement, package.dependencies.get("deepspeed", ()))
    return [requirement for requirement in requirements if requirement.name == "deepspeed"]


def base_deepspeed(row: dict[str, Any]) -> str:
    """Return DeepSpeed's own release that is nearest to a row's, the vendor's fork, which is on no index."""
    return Version(row["deepspeed"]).base_version


def skip_reason(package: Package, row: dict[str, Any]) -> str | None:
    """Return why a package cannot be tested on a release, or None."""
    if package.name == "hpu-fsdp" and not constraints.sharding(TABLE, row):
        return "hpu-fsdp needs a newer torch or Lightning"
    for requirement in deepspeed_ranges(package):
        if "deepspeed" not in row:
            return "no source names the DeepSpeed of this release"
        if base_deepspeed(row) not in requirement.specifier:
            return f"DeepSpeed {base_deepspeed(row)} does not support Gaudi, and Intel's fork is on no package index"
    return None


def use_distribution(distribution: str, *requirements: str) -> list[str]:
    """Return requirements with the extra "lightning" replaced by that of a distribution of the framework."""
    replaced = []
    for requirement in map(Requirement, requirements):
        if "lightning" in requirement.extras:
            requirement.extras = (requirement.extras - {"lightning"}) | {distribution}
        replaced.append(str(requirement))
    return replaced
