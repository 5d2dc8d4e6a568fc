"""The main job, and what it costs."""

from __future__ import annotations

import os

import nox

from sessions.environments import install, own_machine
from sessions.packages import PACKAGES, Package, group, own_group

each_timed_package = nox.parametrize("package", [nox.param(p, id=p.name) for p in PACKAGES.values() if p.benches])


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Train on two simulated Gaudis: examples/train_digits.py, lazy unless PT_HPU_LAZY_MODE is 0; `-- --devices 1`."""
    install(session, *group("demo"))
    environment = own_machine(session) | {"PT_HPU_LAZY_MODE": os.environ.get("PT_HPU_LAZY_MODE", "1")}
    options = session.posargs or ("--devices", "2")
    session.run("hpu-sim", "run", *options, "examples/train_digits.py", env=environment)


@nox.session(default=False)
@each_timed_package
def bench(session: nox.Session, package: Package) -> None:
    """Time what a package promises to be quick: every script in its bench/."""
    install(session, package.name, *own_group(package))
    for script in package.benches:
        session.run("python", str(script), *session.posargs, env=own_machine(session))
