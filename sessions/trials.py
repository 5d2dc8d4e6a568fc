"""What takes too long, or needs too much, for every run of the tests."""

from __future__ import annotations

import nox

from sessions.environments import install, own_machine
from sessions.packages import group
from sessions.testing import install_suite


@nox.session(default=False)
def op_sweep(session: nox.Session) -> None:
    """Run every operator of torch's operator database on the simulated device against the CPU; `-- --dtype float32`."""
    install(session, "hpu-sim", *group("sweep"))
    session.run("python", "packages/hpu-sim/sweep/op_sweep.py", *session.posargs, env=own_machine(session))


@nox.session(default=False)
def third_party(session: nox.Session) -> None:
    """Train with DeepSpeed, accelerate and transformers, unmodified from the index, on the simulated device."""
    install(session, "hpu-sim", *group("third_party"), *group("test"))
    # The machine that the tests ask for, so that each runs here rather than in a process of its own.
    command = ("hpu-sim", "run", "--quiet", "--devices", "2", "-m", "pytest")
    environment = own_machine(session) | {"PT_HPU_LAZY_MODE": "1"}
    session.run(*command, *(session.posargs or ["packages/hpu-sim/third_party"]), env=environment)


@nox.session(default=False)
def two_nodes(session: nox.Session) -> None:
    """Train on two machines, network namespaces of this one, and cut the cable; skipped where none can be made."""
    run_trial(session, "hpu-ddp", "two_nodes")


@nox.session(default=False)
def killed_ranks(session: nox.Session) -> None:
    """Kill a rank in the middle of a training and resume it, twenty times."""
    run_trial(session, "hpu-ddp", "killed_ranks")


@nox.session(default=False)
def cpu_adam(session: nox.Session) -> None:
    """Train with DeepSpeed's Adam for the host, which it compiles; skipped without a compiler."""
    run_trial(session, "hpu-deepspeed", "cpu_adam")


def run_trial(session: nox.Session, package: str, name: str) -> None:
    """Run one of the trials of a package, which are tests that are not collected with the others."""
    install_suite(session, package)
    session.run("pytest", *session.posargs, f"packages/{package}/trials/test_{name}.py")
