"""State of the device's random number generator on each rank, in checkpoints of the Trainer's strategies."""

from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_core import bridge
from hpu_core._lightning import Strategy

if TYPE_CHECKING:
    from pathlib import Path

# Key of a checkpoint for the states, a uint8 tensor `(ranks, bytes)`.
_RANDOM_STATES: Final = "hpu_random_states"


class RandomStatesMixin(Strategy):
    """Mixin that saves and restores the generators' states; list it before Lightning's strategy.

    A training with dropout that resumes on as many devices draws the same numbers as one that was not interrupted.
    """

    _random_states: torch.Tensor | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: "str | Path", storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint, with the states of the devices' generators unless it has weights only.

        Args:
            checkpoint: The Trainer's state.
            filepath: The file, or the directory of a sharded checkpoint.
            storage_options: Argument of the checkpoint plugin.
        """
        if "lr_schedulers" in checkpoint:
            state = bridge.get_rng_state().to("hpu")
            states: torch.Tensor = self.all_gather(state).cpu()
            checkpoint[_RANDOM_STATES] = states.reshape(-1, state.numel())
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: "str | Path", weights_only: bool | None = None) -> dict[str, Any]:
        """Load a checkpoint.

        Args:
            checkpoint_path: The file, or the directory of a sharded checkpoint.
            weights_only: Argument of `torch.load`. Needs Lightning 2.6.

        Returns:
            The Trainer's state.
        """
        options = {} if weights_only is None else {"weights_only": weights_only}
        checkpoint: dict[str, Any] = super().load_checkpoint(checkpoint_path, **options)
        self._random_states = checkpoint.get(_RANDOM_STATES)
        return checkpoint

    def on_train_start(self) -> None:
        """Restore the state of the device's generator from the checkpoint that is resumed."""
        super().on_train_start()
        states, self._random_states = self._random_states, None
        trainer = getattr(self.lightning_module, "trainer", None)
        # Without as many ranks, there is no state for each of them.
        if states is not None and trainer is not None and len(states) == trainer.world_size:
            bridge.set_rng_state(states[trainer.global_rank])

    def teardown(self) -> None:
        """Move everything off the device, and forget the states."""
        self._random_states = None
        super().teardown()
