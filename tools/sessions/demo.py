"""The demo of the README, benchmarks, and what judges the planner."""

from __future__ import annotations

import os
from pathlib import Path

import nox

from sessions.environments import install, isolated_sim_env
from sessions.packages import PACKAGES, Package, group, parametrize, test_requirements

per_benchmark = parametrize("package", (nox.param(p, id=p.name) for p in PACKAGES.values() if p.benchmarks))


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Train examples/train_digits.py on two simulated Gaudis, lazy unless PT_HPU_LAZY_MODE is 0; `-- --devices 1`."""
    install(session, *group("demo"))
    report = Path(session.create_tmp()).resolve() / "demo.html"
    env = isolated_sim_env(session) | {"PT_HPU_LAZY_MODE": os.environ.get("PT_HPU_LAZY_MODE", "1")}
    options = session.posargs or ("--devices", "2")
    session.run("hpu-sim", "run", *options, "--report", str(report), "tools/demo.py", env=env)


@nox.session(default=False)
@per_benchmark
def bench(session: nox.Session, package: Package) -> None:
    """Time what the packages promise to be fast; "bench(hpu-sim)" runs one package's bench/."""
    install(session, package.name, *test_requirements(package), *package.groups.get("bench", []))
    for script in package.benchmarks:
        session.run("python", str(script), *session.posargs, env=isolated_sim_env(session))


@nox.session(default=False)
def judge(session: nox.Session) -> None:
    """Judge the planner's model of time by published speeds; `-- --write` writes its record."""
    package = PACKAGES["hpu-sim"]
    install(session, package.name, *test_requirements(package))
    session.run("python", "packages/hpu-sim/bench/published/judge.py", *session.posargs)
