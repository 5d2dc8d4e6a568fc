"""A SLURM cluster of this machine alone: munged, slurmctld and slurmd, as root, with Debian's packages."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING
from unittest import mock

from harness import wait
from hpu_testing import Program, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DAEMONS = ("munged", "slurmctld", "slurmd")
_LIMIT = 60.0
# Debian's folder of daemons, which a user's PATH lacks.
_PATH = f"{os.environ['PATH']}:/usr/sbin"
# States of a job that will not run again by itself.
_DONE = frozenset({"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"})

# More CPUs than the machine may have. A requeued job starts again when its credential has expired.
# KillWait: seconds between SIGTERM and SIGKILL for the tasks of a job that ends.
_CONFIGURATION = """
ClusterName=engines
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=30
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES
"""


def can_start() -> bool:
    """Return whether the daemons are installed and may run here."""
    return os.geteuid() == 0 and all(shutil.which(daemon, path=_PATH) for daemon in _DAEMONS)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Start the daemons, and set SLURM_CONF for this process and those that it starts.

    Raises:
        TimeoutError: The node does not become idle; the message has the daemons' output.
    """
    host = socket.gethostname().partition(".")[0]
    ports = {"controller_port": free_port(), "node_port": free_port()}
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(host=host, folder=folder, **ports))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    munge += ["--foreground", "--force", f"--socket={folder}/munge.socket"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, SLURM_CONF=str(configuration)))
        daemons = []
        for name, options in zip(_DAEMONS, (munge, ["-D"], ["-D"]), strict=True):
            program = Program([shutil.which(name, path=_PATH) or name, *options], os.environ)
            daemons.append(stack.enter_context(program))
            wait((folder / "munge.socket").exists, _LIMIT)
        if not wait(lambda: query("sinfo", "--noheader", "--format=%T", "--partition=all") == "idle", _LIMIT):
            raise TimeoutError("\n".join(daemon.output for daemon in daemons))
        stack.callback(_end_jobs)
        yield


def query(*command: str) -> str:
    """Return the output of one of SLURM's commands; empty if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def job_field(number: str, name: str) -> str:
    """Return a field of `scontrol show job`, "JobState"."""
    match = re.search(rf"\b{name}=(\S+)", query("scontrol", "--oneliner", "show", "job", number))
    return match[1] if match is not None else ""


def has_ended(number: str) -> bool:
    """Return whether a job will not run again by itself."""
    return job_field(number, "JobState") in _DONE


def _end_jobs() -> None:
    query("scancel", "--partition=all")
    wait(lambda: not query("squeue", "--noheader"), _LIMIT)
