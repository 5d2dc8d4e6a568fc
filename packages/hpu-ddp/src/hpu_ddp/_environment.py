"""What the environment says about this process's place among the ranks, checked before anything relies on it.

Lightning believes these variables; where one is missing or contradicts another, ranks wait for each other until a
timeout, or train two halves of a model without a word.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hpu_ddp._lightning import ClusterEnvironment, LightningEnvironment

_ADVICE: Final = (
    "On each machine, set MASTER_ADDR (the address of the machine with NODE_RANK 0), MASTER_PORT (a port that is free "
    "there), NODE_RANK (0, 1, ...) and WORLD_SIZE (all processes of all machines)"
)
_MAX_PORT: Final = 65535


def check(environment: ClusterEnvironment, devices: int, num_nodes: int) -> None:
    """Check that this process has a place among the ranks, and that the others can find it.

    Args:
        environment: Lightning's idea of how the processes are started.
        devices: How many processes each machine runs.
        num_nodes: The number of machines.

    Raises:
        ValueError: Something is missing or contradicts something else; the text lists everything.
    """
    if isinstance(environment, LightningEnvironment):
        problems = list(_problems(_Variables(os.environ, devices, num_nodes)))
        advice = _ADVICE if num_nodes > 1 else "Unset what your shell or an earlier program has left, or correct it"
    else:
        problems = list(_problems_of_manager(environment, devices, num_nodes))
        advice = "`devices` and `num_nodes` must be what the processes were started with"
    if problems:
        raise ValueError(
            f"the environment and `devices={devices}`, `num_nodes={num_nodes}` do not fit together: "
            f"{'; '.join(problems)}. {advice}"
        )


@dataclass(frozen=True, slots=True)
class _Variables:
    """The variables by which processes find each other that a person, Lightning or its launcher starts."""

    environ: Mapping[str, str]
    devices: int
    num_nodes: int

    def number(self, name: str) -> int | None:
        """Return a variable's number; None where it is not set or is none, which `malformed` tells."""
        text = self.environ.get(name, "")
        return int(text) if text.isdecimal() else None

    def malformed(self) -> Iterator[str]:
        """Tell which variables hold something else than a number."""
        for name in ("LOCAL_RANK", "MASTER_PORT", "NODE_RANK", "GROUP_RANK", "RANK", "WORLD_SIZE"):
            text = self.environ.get(name)
            if text is not None and not text.isdecimal():
                yield f"{name}={text!r} is no number"

    @property
    def world_size(self) -> int:
        """All processes."""
        return self.devices * self.num_nodes

    @property
    def node_rank(self) -> int | None:
        """This machine; None where nobody says."""
        own = self.number("NODE_RANK")
        return self.number("GROUP_RANK") if own is None else own

    @property
    def launched(self) -> bool:
        """Whether somebody has started this process as one of several."""
        return "LOCAL_RANK" in self.environ


def _problems(variables: _Variables) -> Iterator[str]:
    malformed = list(variables.malformed())
    if malformed:
        yield from malformed
        return
    yield from _missing(variables)
    yield from _out_of_range(variables)
    yield from _contradictions(variables)


def _missing(variables: _Variables) -> Iterator[str]:
    several = variables.num_nodes > 1
    if several and variables.node_rank is None:
        yield "NODE_RANK is not set"
    if several and variables.node_rank != 0 and "MASTER_ADDR" not in variables.environ:
        yield "MASTER_ADDR is not set"
    # The launcher chooses a port for the processes that it starts itself, on one machine.
    started_apart = several or (variables.launched and variables.world_size > 1)
    if started_apart and variables.number("MASTER_PORT") is None:
        yield "MASTER_PORT is not set"
    # Lightning takes the variable away when a training ends, and the process may begin another one.
    if several and not variables.launched and variables.number("WORLD_SIZE") is None:
        yield "WORLD_SIZE is not set"


def _out_of_range(variables: _Variables) -> Iterator[str]:
    port, local_rank, node_rank = variables.number("MASTER_PORT"), variables.number("LOCAL_RANK"), variables.node_rank
    if port is not None and not 0 < port <= _MAX_PORT:
        yield f"MASTER_PORT={port} is no port from 1 to {_MAX_PORT}"
    if local_rank is not None and local_rank >= variables.devices:
        yield f"LOCAL_RANK={local_rank} is not below `devices`"
    if node_rank is not None and node_rank >= variables.num_nodes:
        yield f"NODE_RANK={node_rank} is not below `num_nodes`"


def _contradictions(variables: _Variables) -> Iterator[str]:
    world_size, rank, local_rank = (variables.number(name) for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"))
    if world_size not in {None, variables.world_size}:
        yield f"WORLD_SIZE={world_size} is not {variables.devices} times {variables.num_nodes}"
    if rank is not None and local_rank is not None:
        expected = (variables.node_rank or 0) * variables.devices + local_rank
        if rank != expected:
            yield f"RANK={rank} is not NODE_RANK times `devices` plus LOCAL_RANK, which is {expected}"


def _problems_of_manager(environment: ClusterEnvironment, devices: int, num_nodes: int) -> Iterator[str]:
    """Ask torchrun's, SLURM's, MPI's or the user's environment, which reads its own variables."""
    name = type(environment).__name__
    try:
        local_rank, node_rank = environment.local_rank(), environment.node_rank()
        # As Lightning does next. An environment that knows better passes it over.
        environment.set_global_rank(node_rank * devices + local_rank)
        environment.set_world_size(devices * num_nodes)
        rank, world_size = environment.global_rank(), environment.world_size()
    except KeyError as error:
        yield f"{name} needs {error.args[0]}, which is not set"
        return
    except (TypeError, ValueError) as error:
        yield f"{name} cannot tell this process's place: {error}"
        return
    if world_size != devices * num_nodes:
        yield f"{name} counts {world_size} processes, not {devices} times {num_nodes}"
    if local_rank >= devices:
        yield f"{name} says local rank {local_rank}, which is not below `devices`"
    if node_rank >= num_nodes:
        yield f"{name} says node rank {node_rank}, which is not below `num_nodes`"
    if rank >= world_size:
        yield f"{name} says rank {rank} of {world_size}"
