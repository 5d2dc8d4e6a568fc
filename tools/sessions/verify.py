"""Assumptions about cards: `hpu-doctor verify` on simulated cards, and records of its reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

from sessions.environments import install, isolated_sim_env
from sessions.packages import PACKAGES, group, parametrize

# The first release with autocast, the last with the earlier state of the bridge that is in use, lazy and eager mode.
RELEASES = ("1.11.0", "1.18.0", "1.20.0", "1.24.1")
per_release = parametrize("release", (nox.param(release, id=release) for release in RELEASES))


@nox.session(default=False)
@per_release
def verify(session: nox.Session, release: str) -> None:
    """Try all assumptions on two simulated cards in strict mode; "verify(1.24.1)" on one release."""
    install(session, "hpu-doctor", "hpu-sim", "hpu-deepspeed[deepspeed]", *group("test"))
    folder = Path(session.create_tmp()).resolve() / f"report-{release}"
    env = isolated_sim_env(session) | {"HPU_SIM_DEVICES": "2", "HPU_SIM_RELEASE": release, "HPU_SIM_STRICT": "1"}
    # That of the last run.
    shutil.rmtree(folder, ignore_errors=True)
    command = ("hpu-doctor", "verify", "--out", str(folder), "--all-cards", "--points", "--minutes", "60")
    session.run(*command, *session.posargs, env=env)


@nox.session(default=False)
def verified(session: nox.Session) -> None:
    """Turn a report of `hpu-doctor verify` into a record: `-- FOLDER`."""
    if not session.posargs:
        session.skip("needs the folder of a report: nox -s verified -- FOLDER")
    install(session, *PACKAGES, *group("constraints"))
    session.run("python", "tools/verification.py", "record", *session.posargs)
