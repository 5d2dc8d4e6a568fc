"""Tests that take long or need special rights, which CI does not run."""

from __future__ import annotations

import nox

from sessions.environments import install, isolated_sim_env
from sessions.packages import group
from sessions.testing import install_suite


@nox.session(default=False)
def op_sweep(session: nox.Session) -> None:
    """Compare all operators of torch's operator database on the simulated device with the CPU; `-- --dtype float32`."""
    install(session, "hpu-sim", *group("sweep"))
    session.run("python", "packages/hpu-sim/sweep/op_sweep.py", *session.posargs, env=isolated_sim_env(session))


@nox.session(default=False)
def third_party(session: nox.Session) -> None:
    """Train with DeepSpeed, accelerate and transformers, unmodified from the index, on the simulated device."""
    install(session, "hpu-sim", *group("third_party"), *group("test"))
    # The machine that the tests ask for, so that none needs a process of its own.
    command = ("hpu-sim", "run", "--quiet", "--devices", "2", "-m", "pytest")
    env = isolated_sim_env(session) | {"PT_HPU_LAZY_MODE": "1"}
    session.run(*command, *(session.posargs or ["packages/hpu-sim/third_party"]), env=env)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Have a rank fail in every way, on one machine and two, and print a table; `-- --runs 1` for a short one."""
    install(session, "hpu-ddp", "hpu-deepspeed[deepspeed]", "hpu-sim", *group("demo"))
    session.run("python", "scripts/faults/measure.py", *session.posargs)


@nox.session(default=False)
def cpu_adam(session: nox.Session) -> None:
    """Train with DeepSpeed's CPU Adam, which it compiles; skipped without a compiler."""
    run_slow_test(session, "hpu-deepspeed", "cpu_adam")


def run_slow_test(session: nox.Session, package: str, name: str) -> None:
    """Run a file of a package's trials/, which pytest does not collect with the other tests."""
    install_suite(session, package)
    session.run("pytest", *session.posargs, f"packages/{package}/trials/test_{name}.py")
