"""Cluster environment of this process: what launchers set, validated before anything relies on it.

Lightning believes these variables. Where one is missing or contradicts another, ranks wait for each other until a
timeout, or silently train two separate models.
"""

import os
from collections.abc import Iterator
from typing import Final

from hpu_core._lightning import ClusterEnvironment, LightningEnvironment
from hpu_core.launcher_env import LIGHTNING_INTS, MAX_PORT, parse_int

_HINT: Final = (
    "On each machine, set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is free "
    "there) and NODE_RANK (0, 1, ...)"
)
_MAX_QUOTED: Final = 80


def validate_environment(environment: ClusterEnvironment, devices: int, num_nodes: int) -> None:
    """Check that this process has a rank and that the other ranks can find it.

    Raises:
        ValueError: A variable is missing, malformed or contradicts another; the message lists every problem.
    """
    if isinstance(environment, LightningEnvironment):
        problems = list(_lightning_env_problems(devices, num_nodes))
        hint = _HINT if num_nodes > 1 else "Unset what your shell or an earlier program left, or correct it"
    else:
        problems = list(_cluster_env_problems(environment, devices, num_nodes))
        hint = "`devices` and `num_nodes` must be what the launcher was given"
    if problems:
        raise ValueError(
            f"the environment contradicts `devices={devices}`, `num_nodes={num_nodes}`: {'; '.join(problems)}. {hint}"
        )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}...")


def _lightning_env_problems(devices: int, num_nodes: int) -> Iterator[str]:
    values = {name: parse_int(os.environ[name]) for name in LIGHTNING_INTS if name in os.environ}
    invalid = [name for name, value in values.items() if value is None]
    if invalid:
        yield from (f"{name} must be an integer, got {_quoted(os.environ[name])}" for name in invalid)
        return
    node_rank = values.get("NODE_RANK", values.get("GROUP_RANK"))
    port, local_rank = values.get("MASTER_PORT"), values.get("LOCAL_RANK")
    is_externally_launched = local_rank is not None
    if num_nodes > 1 and node_rank is None:
        yield "NODE_RANK is not set"
    if num_nodes > 1 and node_rank != 0 and "MASTER_ADDR" not in os.environ:
        yield "MASTER_ADDR is not set"
    # On one machine, the launcher chooses a port for the ranks that it starts.
    if (num_nodes > 1 or (is_externally_launched and devices > 1)) and port is None:
        yield "MASTER_PORT is not set"
    if port is not None and not 0 < port <= MAX_PORT:
        yield f"MASTER_PORT must be from 1 to {MAX_PORT}, got {port}"
    if local_rank is not None and local_rank >= devices:
        yield f"LOCAL_RANK must be below `devices`, got {local_rank}"
    if node_rank is not None and node_rank >= num_nodes:
        yield f"NODE_RANK must be below `num_nodes`, got {node_rank}"


def _cluster_env_problems(environment: ClusterEnvironment, devices: int, num_nodes: int) -> Iterator[str]:
    """Ask the environment of torchrun, SLURM, MPI or the user, which reads its own variables."""
    name, world_size = type(environment).__name__, devices * num_nodes
    try:
        local_rank, node_rank = environment.local_rank(), environment.node_rank()
        # As Lightning does next. An environment that its launcher sets ignores both.
        environment.set_global_rank(node_rank * devices + local_rank)
        environment.set_world_size(world_size)
        rank, counted = environment.global_rank(), environment.world_size()
        port = int(environment.main_port)
    except KeyError as error:
        yield f"{name} needs {error.args[0]}, which is not set"
        return
    except (TypeError, ValueError) as error:
        yield f"{name} cannot determine the rank of this process: {str(error)[:_MAX_QUOTED]}"
        return
    if counted != world_size:
        yield f"{name} has world size {counted}, not {devices} x {num_nodes} = {world_size}"
    for what, value, limit, rule in (
        ("local rank", local_rank, devices, "`devices`"),
        ("node rank", node_rank, num_nodes, "`num_nodes`"),
        ("rank", rank, counted, f"its world size {counted}"),
    ):
        if not 0 <= value < limit:
            sign = "must not be negative" if value < 0 else f"must be below {rule}"
            yield f"{name} has {what} {value}, which {sign}"
    if not 0 < port <= MAX_PORT:
        yield f"{name} has port {port}, which must be from 1 to {MAX_PORT}"
