"""Tests with other versions of torch and Lightning than the default."""

from __future__ import annotations

from pathlib import Path

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.version import Version

from sessions.environments import (
    DEFAULT_CONSTRAINTS,
    isolated_sim_env,
    reinstall,
    select,
    temporary_venv,
    warnings_ignored,
)
from sessions.packages import PACKAGES, ROOT, group, parametrize, test_requirements
from sessions.testing import XDIST_OPTIONS

# The tests that depend on the Lightning version. The largest download comes last.
LIGHTNING_TESTS = {
    "hpu-bucketing": ("tests",),
    "hpu-core": ("tests",),
    "hpu-precision": ("tests",),
    "hpu-profiler": ("tests",),
    "hpu-ddp": ("tests/test_training.py", "tests/test_fabric.py"),
    "hpu-compat": ("tests",),
    "hpu-deepspeed": ("tests",),
    "hpu-fsdp": ("tests",),
}


def constraint_files(name: str) -> dict[str, Path]:
    """Return the generated constraints for each version of torch or Lightning, oldest first."""
    files = {file.stem.removeprefix(f"{name}-"): file for file in ROOT.glob(f"constraints/{name}-*.txt")}
    return {version: files[version] for version in sorted(files, key=Version)}


per_torch = parametrize("file", (nox.param(file, id=version) for version, file in constraint_files("torch").items()))
per_lightning = parametrize(
    ("file", "distribution"),
    [
        *(nox.param(file, "lightning", id=version) for version, file in constraint_files("lightning").items()),
        # The default version as the framework's other distribution.
        nox.param(ROOT / DEFAULT_CONSTRAINTS, "pytorch-lightning", id="pytorch-lightning"),
    ],
)


@nox.session(default=False)
@per_torch
def sim_torch(session: nox.Session, file: Path) -> None:
    """Test hpu-sim with other torches, gigabytes each, which are removed afterwards; "sim_torch(2.4.0)" runs one."""
    package = PACKAGES["hpu-sim"]
    # Inside the environment, so that it is removed with it.
    cache = Path(session.create_tmp()).resolve() / "hpu-sim"
    with temporary_venv(session):
        # Not cached by pip, because a torch without a CPU build comes with gigabytes of CUDA.
        requirements = ("-e", f"./{package.path}", *group("test"), *test_requirements(package))
        session.install("--no-cache-dir", "-c", str(file), *requirements)
        tests = session.posargs or [*XDIST_OPTIONS, f"{package.path}/tests"]
        session.run("pytest", *tests, env=isolated_sim_env(session) | {"HPU_SIM_CACHE": str(cache)})


@nox.session(default=False)
@per_lightning
def minors(session: nox.Session, file: Path, distribution: str) -> None:
    """Test with other Lightnings; "minors(2.4.0)" with one; `-- hpu-core` selects packages, and keeps the venv."""
    failed = []
    with temporary_venv(session):
        for name in select(session, LIGHTNING_TESTS):
            package = PACKAGES[name]
            required = use_distribution(distribution, f"{name}[lightning]", *test_requirements(package))
            reinstall(session, str(file), *required, *group("test"))
            tests = (f"{package.path}/{test}" for test in LIGHTNING_TESTS[name])
            try:
                session.run("pytest", *XDIST_OPTIONS, *tests, env=isolated_sim_env(session) | warnings_ignored())
            except CommandFailed:
                failed.append(name)
    if failed:
        session.error(f"tests of {', '.join(failed)} failed")


def use_distribution(distribution: str, *requirements: str) -> list[str]:
    """Return requirements with the extra "lightning" replaced by that of a distribution of the framework."""
    replaced = []
    for requirement in map(Requirement, requirements):
        if "lightning" in requirement.extras:
            requirement.extras = (requirement.extras - {"lightning"}) | {distribution}
        replaced.append(str(requirement))
    return replaced
