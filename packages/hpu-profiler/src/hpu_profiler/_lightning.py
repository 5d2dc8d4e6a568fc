"""What HPUProfiler needs of Lightning: its profiler class, the names of its actions, and facts about its Trainer.

Importing this module imports the Lightning that `hpu_core.frameworks` chose. Type checkers see `lightning`; the sources
of `pytorch_lightning` are generated from the same ones.
"""

from __future__ import annotations

import functools
import math
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_core import HPUAccelerator, bridge, frameworks

if TYPE_CHECKING:
    from lightning.pytorch.profilers.pytorch import PyTorchProfiler
    from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
else:
    _framework = frameworks.current()
    PyTorchProfiler = _framework.pytorch("profilers.pytorch").PyTorchProfiler
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info
    rank_zero_warn = _framework.pytorch("utilities").rank_zero_warn


#: Kind of a run's steps by the Trainer's stage.
MAIN_STEP_KINDS: Final = {"fit": "training", "validate": "validation", "test": "test", "predict": "predict"}

_DATA_LOADING_SUFFIXES: Final = {
    ".train_dataloader_next": "training",
    ".val_next": "validation",
    ".test_next": "test",
    ".predict_next": "predict",
}
# A training step ends with the whole batch, because the backward pass follows "training_step".
_STEP_SUFFIXES: Final = {
    "run_training_batch": "training",
    "validation_step": "validation",
    "test_step": "test",
    "predict_step": "predict",
}


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """Relation of an action to the steps.

    Attributes:
        starts_step: Kind of the step that starts with the action or has started before it; None if there is none.
        ends_step: Kind of the step that ends with the action; None if there is none.
        is_failure: Whether the action shows that the run has failed.
    """

    starts_step: str | None = None
    ends_step: str | None = None
    is_failure: bool = False


# A Trainer repeats a few dozen action names in each step, recorded or not.
@functools.lru_cache(maxsize=1024)
def classify_action(action_name: str, stage: str | None) -> ActionInfo:
    """Return the relation of an action to the steps.

    Args:
        action_name: Name of the action.
        stage: Stage of the Trainer; None without a Trainer and before its run.
    """
    if stage is None:
        # Steps have no kind without a Trainer. A Trainer names its actions before the run "[LightningModule]...".
        is_step = action_name.endswith((*_STEP_SUFFIXES, "training_step"))
        return ActionInfo(None if action_name.startswith("[") else "", "" if is_step else None)
    ends_step = _match(action_name, _STEP_SUFFIXES)
    return ActionInfo(
        starts_step=ends_step or _match(action_name, _DATA_LOADING_SUFFIXES),
        ends_step=ends_step,
        is_failure=action_name.endswith(".on_exception"),
    )


def _match(action_name: str, suffixes: dict[str, str]) -> str | None:
    return next((kind for suffix, kind in suffixes.items() if action_name.endswith(suffix)), None)


def has_device(trainer: Any) -> bool:
    """Return whether the Trainer's accelerator is HPU; without a Trainer, whether the process has opened a device."""
    return isinstance(trainer.accelerator, HPUAccelerator) if trainer is not None else bridge.is_open()


def is_sanity_checking(trainer: Any) -> bool:
    """Return whether the Trainer runs the sanity check before training."""
    return trainer is not None and bool(trainer.sanity_checking)


def rank_metadata(trainer: Any) -> dict[str, Any]:
    """Return the metadata of a trace that identifies its process."""
    if trainer is None:
        return {"host": socket.gethostname()}
    return {
        "rank": int(trainer.global_rank),
        "world_size": int(trainer.world_size),
        "node_rank": int(trainer.node_rank),
        "host": socket.gethostname(),
    }


def expected_steps(trainer: Any, kind: str) -> float:
    """Return the largest possible number of steps of a kind; infinity if it is unknown."""
    if trainer is None:
        return math.inf
    if kind == "training":
        epochs = trainer.max_epochs
        steps = math.inf if epochs is None or epochs < 0 else trainer.num_training_batches * epochs
        return min(steps, trainer.max_steps) if trainer.max_steps >= 0 else steps
    if kind == "validation" and trainer.state.fn != "validate" and trainer.max_epochs != 1:
        return math.inf
    names = {"validation": "num_val_batches", "test": "num_test_batches", "predict": "num_predict_batches"}
    return _total(getattr(trainer, names[kind]))


def _total(batches: Any) -> float:
    return float(sum(batches)) if isinstance(batches, list) else float(batches)


def hook_owners(trainer: Any) -> dict[str, Any]:
    """Return the objects with hooks of the user's, by the start of the names of their actions."""
    if trainer is None or trainer.lightning_module is None:
        return {}
    owners = {f"[Callback]{each.state_key.partition('{')[0]}": each for each in trainer.callbacks}
    module = trainer.lightning_module
    # A strategy calls the steps of the module under its own name.
    return {
        **owners,
        f"[LightningModule]{type(module).__name__}": module,
        f"[Strategy]{type(trainer.strategy).__name__}": module,
    }
