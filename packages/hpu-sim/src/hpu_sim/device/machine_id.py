"""Identity of the simulated machine: processes with the same one compete for the same devices.

A machine belongs to one `hpu-sim run`, one program started with ``HPU_SIM_DEVICES`` or one pytest session. Children
inherit it in ``HPU_SIM_MACHINE``. Ranks that a job manager starts share the one of their job. A user shares a machine
on purpose by naming it, in ``HPU_SIM_MACHINE`` or by the folder of ``HPU_SIM_RUNTIME_DIR``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE_VARIABLE: Final = "HPU_SIM_MACHINE"
RUNTIME_VARIABLE: Final = "HPU_SIM_RUNTIME_DIR"

# No name of a user has a colon.
_GENERATED: Final = "auto:"
# Variables of ranks per job manager: the number of ranks, then what identifies the job.
_JOB_VARIABLES: Final = (
    ("OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    ("OMPI_COMM_WORLD_SIZE", ("OMPI_MCA_orte_hnp_uri",)),
    ("SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


def parse_name(name: str) -> str:
    """Return the name of a shared machine.

    Raises:
        ValueError: If the name is empty or has a colon.
    """
    if not name or ":" in name:
        raise ValueError(f"`machine` must be a name without a colon, got {name!r}")
    return name


def current(environment: Mapping[str, str]) -> str:
    """Return the identity of a process's machine."""
    folder = environment.get(RUNTIME_VARIABLE)
    name = environment.get(MACHINE_VARIABLE, "")
    if not folder:
        return f"user {os.getuid()} {name}"
    # Whoever uses the folder may be another user.
    return f"{'' if name.startswith(_GENERATED) else name} in {os.path.realpath(folder)}"


def inherited_or_new(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of a program: that of its parent's machine if it has one, else of a new machine."""
    if environment.get(RUNTIME_VARIABLE):
        return {}
    return {MACHINE_VARIABLE: environment.get(MACHINE_VARIABLE) or _generate(environment)}


def named_or_new(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of a session: that of the machine that the user named, else of a new machine."""
    name = environment.get(MACHINE_VARIABLE, "")
    return inherited_or_new({**environment, MACHINE_VARIABLE: "" if name.startswith(_GENERATED) else name})


def new() -> str:
    """Return the identity of a machine that no other process has."""
    return f"{_GENERATED}{os.urandom(8).hex()}"


def _generate(environment: Mapping[str, str]) -> str:
    for size, names in _JOB_VARIABLES:
        job = [environment.get(name, "") for name in names]
        # An interactive shell is a job of one rank, and may run several programs.
        if environment.get(size, "1") != "1" and all(job):
            return f"{_GENERATED}{' '.join(job)}"
    return new()
