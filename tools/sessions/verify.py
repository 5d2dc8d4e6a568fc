"""Assumptions about cards: `hpu-doctor verify` on simulated cards."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

from sessions.environments import install, isolated_sim_env
from sessions.packages import group, parametrize

# The first release with autocast, the last with the earlier state of the bridge that is in use, lazy and eager mode.
RELEASES = ("1.11.0", "1.18.0", "1.20.0", "1.24.1")
per_release = parametrize("release", (nox.param(release, id=release) for release in RELEASES))


@nox.session(default=False)
@per_release
def verify(session: nox.Session, release: str) -> None:
    """Try all assumptions on two simulated cards; "verify(1.24.1)" on one release."""
    install(session, "hpu-doctor", "hpu-sim", "hpu-deepspeed[deepspeed]", *group("test"))
    folder = Path(session.create_tmp()).resolve() / f"report-{release}"
    env = isolated_sim_env(session) | {"HPU_SIM_DEVICES": "2", "HPU_SIM_RELEASE": release}
    # That of the last run.
    shutil.rmtree(folder, ignore_errors=True)
    command = ("hpu-doctor", "verify", "--out", str(folder), "--all-cards")
    session.run(*command, *session.posargs, env=env)
