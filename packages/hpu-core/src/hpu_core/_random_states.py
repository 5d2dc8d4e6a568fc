"""State of the device's random number generator on each rank, in the checkpoints of all strategies."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from hpu_core import bridge
from hpu_core._lightning import rank_zero_info

if TYPE_CHECKING:
    from pathlib import Path

    class _Strategy:
        """Part of Lightning's strategies, the Trainer's and Fabric's, that is used here."""

        lightning_module: Any

        def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any: ...
        def on_train_start(self) -> None: ...
        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...
        def teardown(self) -> None: ...

else:
    _Strategy = object

# Key of a checkpoint for the states, a uint8 tensor `(ranks, bytes)`.
_RANDOM_STATES: Final = "hpu_random_states"


class _RandomStates(_Strategy):
    """Mixin that adds the generators' states to what is saved, without a change of the user's objects.

    A training with dropout that resumes on as many devices draws the same numbers as one that was not interrupted.
    """

    def with_random_states(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return what is saved, for a training with the states of the generators; all ranks must call this."""
        if _RANDOM_STATES in state or not self.is_training_state(state):
            return state
        states = self.gather_random_states(bridge.get_rng_state())
        if states is None:
            rank_zero_info("Saving without the states of the devices' random generators, because a rank has failed")
        # In any case, because a strategy may ask again.
        return {**state, _RANDOM_STATES: states}

    @abstractmethod
    def is_training_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether a training resumes from this state; weights alone are for something else."""

    def gather_random_states(self, state: Tensor) -> Tensor | None:
        """Return the states of all ranks on rank 0; None on the others, or if one has failed."""
        return state[None]


def _restore(states: Tensor | None, rank: int, world_size: int) -> None:
    if states is None:
        return
    if len(states) == world_size:
        bridge.set_rng_state(states[rank])
    else:
        rank_zero_info(
            f"The states of the devices' random generators are not restored: the checkpoint has those of {len(states)} "
            f"ranks, and this training has {world_size}"
        )


class RandomStatesMixin(_RandomStates):
    """Mixin of the Trainer's strategies; list it before Lightning's strategy."""

    _random_states: Tensor | None = None

    def is_training_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether the Trainer saves more than weights."""
        return "lr_schedulers" in state

    def save_checkpoint(self, checkpoint: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Save a checkpoint, with the states of the devices' generators unless it has weights only."""
        super().save_checkpoint(self.with_random_states(checkpoint), *args, **kwargs)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Load a checkpoint; `weights_only`, an argument of `torch.load`, needs Lightning 2.6."""
        checkpoint: dict[str, Any] = super().load_checkpoint(*args, **kwargs)
        self._random_states = checkpoint.pop(_RANDOM_STATES, None)
        return checkpoint

    def on_train_start(self) -> None:
        """Restore the state of the device's generator from the checkpoint that is resumed."""
        super().on_train_start()
        states, self._random_states = self._random_states, None
        trainer = getattr(self.lightning_module, "trainer", None)
        if trainer is not None:
            _restore(states, trainer.global_rank, trainer.world_size)

    def teardown(self) -> None:
        """Move everything off the device, and forget the states."""
        self._random_states = None
        super().teardown()


class FabricRandomStatesMixin(_RandomStates):
    """Mixin of Fabric's strategies; list it before Lightning's strategy."""

    def is_training_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether there is an optimizer, or DeepSpeed's engine, which has one."""
        return any(
            isinstance(value, torch.optim.Optimizer) or getattr(value, "optimizer", None) is not None
            for value in state.values()
        )

    def save_checkpoint(
        self,
        path: "str | Path",
        state: dict[str, Any],
        storage_options: Any | None = None,
        filter: Any | None = None,  # noqa: A002 - Lightning's name.
    ) -> None:
        """Save a checkpoint, with the states of the devices' generators if it has an optimizer.

        `filter` needs Lightning 2.1.
        """
        options = {} if filter is None else {"filter": filter}
        super().save_checkpoint(path, self.with_random_states(state), storage_options, **options)

    def load_checkpoint(
        self, path: "str | Path", state: Any | None = None, strict: bool = True, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint, and restore the state of the device's generator if `state` has an optimizer.

        `strict=False` needs Lightning 2.1, and `weights_only` 2.6.
        """
        options: dict[str, Any] = {} if strict else {"strict": strict}
        if weights_only is not None:
            options["weights_only"] = weights_only
        loaded: dict[str, Any] = super().load_checkpoint(path, state, **options)
        states = loaded.pop(_RANDOM_STATES, None)
        if isinstance(state, dict) and self.is_training_state(state):
            _restore(states, getattr(self, "global_rank", 0), getattr(self, "world_size", 1))
        return loaded
