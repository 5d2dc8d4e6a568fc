"""Cluster environment of this process: what Lightning believes, and what makes ranks wait in vain where it is wrong."""

import os
from collections.abc import Iterator

from hpu_core._lightning import ClusterEnvironment, LightningEnvironment


def validate_environment(environment: ClusterEnvironment, devices: int, num_nodes: int) -> None:
    """Check that this process has a rank and that the other ranks can find it.

    Raises:
        ValueError: A variable is missing or contradicts another; the message lists every problem.
    """
    if problems := [*_missing(environment, devices, num_nodes), *_contradictions(environment, devices, num_nodes)]:
        raise ValueError(
            f"the environment contradicts `devices={devices}`, `num_nodes={num_nodes}`: {'; '.join(problems)}. On each "
            "machine, set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is free "
            "there) and NODE_RANK (0, 1, ...), or start as many processes; on one machine, unset what is left over"
        )


def _missing(environment: ClusterEnvironment, devices: int, num_nodes: int) -> Iterator[str]:
    """Yield what Lightning's own environment would replace by a default that differs from rank to rank."""
    if not isinstance(environment, LightningEnvironment):
        return
    if num_nodes > 1 and not (has_rank := bool({"NODE_RANK", "GROUP_RANK"} & os.environ.keys())):
        yield "NODE_RANK is not set"
    if num_nodes > 1 and not (has_rank and environment.node_rank() == 0) and "MASTER_ADDR" not in os.environ:
        yield "MASTER_ADDR is not set"
    # On one machine, the launcher chooses a port for the ranks that it starts.
    if (num_nodes > 1 or (devices > 1 and "LOCAL_RANK" in os.environ)) and "MASTER_PORT" not in os.environ:
        yield "MASTER_PORT is not set"


def _contradictions(environment: ClusterEnvironment, devices: int, num_nodes: int) -> Iterator[str]:
    # As Lightning does next. An environment that its launcher sets ignores it.
    environment.set_world_size(devices * num_nodes)
    if (size := environment.world_size()) != devices * num_nodes:
        yield f"the launcher has started {size} ranks, not {devices} x {num_nodes} = {devices * num_nodes}"
    if (rank := environment.local_rank()) >= devices:
        yield f"the local rank must be below `devices`, got {rank}"
    if (rank := environment.node_rank()) >= num_nodes:
        yield f"NODE_RANK must be below `num_nodes`, got {rank}"
