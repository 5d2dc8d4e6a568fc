"""State of the device's random number generator on each rank, in the checkpoints of all strategies.

A training with dropout that resumes on as many devices draws the same numbers as one that was not interrupted.
"""

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor

from hpu_core import bridge
from hpu_core._lightning import rank_zero_info

KEY: Final = "hpu_random_states"
"""Key of a checkpoint for the states, a uint8 tensor `(ranks, bytes)`."""


def add(state: dict[str, Any], gather: Callable[[Tensor], Tensor | None]) -> dict[str, Any]:
    """Return what is saved with the states of the generators, without a change of the user's objects.

    Args:
        state: What is saved.
        gather: Returns the states of all ranks; None if one has failed.
    """
    if KEY in state:
        return state
    states = gather(bridge.get_rng_state())
    if states is None:
        rank_zero_info("Saving without the states of the devices' random generators, because a rank has failed")
    # In any case, because a strategy may ask again.
    return {**state, KEY: states}


def restore(states: Tensor | None, rank: int, world_size: int) -> None:
    """Set the state of this rank's generator, if there is one for each rank."""
    if states is None:
        return
    if len(states) == world_size:
        bridge.set_rng_state(states[rank])
    else:
        rank_zero_info(
            f"The states of the devices' random generators are not restored: the checkpoint has those of {len(states)} "
            f"ranks, and this training has {world_size}"
        )
