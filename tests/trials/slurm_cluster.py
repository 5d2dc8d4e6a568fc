"""A SLURM cluster of this machine alone: munged, slurmctld and slurmd, as root, with Debian's packages."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING
from unittest import mock

from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
# Seconds between SIGTERM and SIGKILL for the tasks of a job that ends.
KILL_WAIT = 5
_LIMIT = 60.0
# Debian's folder of daemons, which a user's PATH lacks.
_PATH = f"{os.environ['PATH']}:/usr/sbin"

# More CPUs than the machine has, so that two jobs fit. A requeued job starts again when its credential has expired.
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
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1
PartitionName=high Nodes={host} PriorityTier=2 PreemptMode=OFF
"""


def can_start() -> bool:
    """Return whether the daemons are installed and may run here."""
    return os.geteuid() == 0 and all(shutil.which(daemon, path=_PATH) for daemon in DAEMONS)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Start the daemons, and set SLURM_CONF for this process and those that it starts.

    Args:
        folder: An empty folder.

    Raises:
        TimeoutError: The node does not become idle; the message has the daemons' output.
    """
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            host=host, folder=folder, controller_port=free_port(), node_port=free_port(), kill_wait=KILL_WAIT
        )
    )
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, SLURM_CONF=str(configuration)))
        stack.enter_context(_daemon(["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge]))
        _wait(folder / "munge.socket")
        stack.enter_context(_daemon(["slurmctld", "-D"], folder / "slurmctld.log"))
        stack.enter_context(_daemon(["slurmd", "-D"], folder / "slurmd.log"))
        deadline = time.monotonic() + _LIMIT
        while query("sinfo", "--noheader", "--format=%T", "--partition=low") != "idle":
            if time.monotonic() > deadline:
                raise TimeoutError("".join(log.read_text() for log in sorted(folder.glob("*.log"))))
            time.sleep(0.2)
        stack.callback(_end_jobs)
        yield


def query(*command: str) -> str:
    """Return the output of one of SLURM's commands; empty if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@contextlib.contextmanager
def _daemon(command: list[str], log: Path | None = None) -> Iterator[None]:
    path = shutil.which(command[0], path=_PATH) or command[0]
    with contextlib.ExitStack() as stack:
        output = subprocess.DEVNULL if log is None else stack.enter_context(log.open("w"))
        # Its own session: Ctrl-C must leave the daemons until the jobs are cancelled.
        process = subprocess.Popen([path, *command[1:]], stdout=output, stderr=output, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _end_jobs() -> None:
    query("scancel", "--partition=low")
    query("scancel", "--partition=high")
    deadline = time.monotonic() + _LIMIT
    while query("squeue", "--noheader") and time.monotonic() < deadline:
        time.sleep(0.2)


def _wait(file: Path) -> None:
    deadline = time.monotonic() + _LIMIT
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} was not created")
        time.sleep(0.05)
