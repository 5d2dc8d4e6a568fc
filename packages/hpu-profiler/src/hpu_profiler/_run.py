"""What a profiler has to know of the Trainer's run: its steps, its place among others, and whether it has a card."""

from __future__ import annotations

import functools
import math
import socket
from dataclasses import dataclass
from typing import Any, Final

from hpu_core import HPUAccelerator, bridge

#: Kinds of steps by what the Trainer was asked to do.
KINDS: Final = {"fit": "training", "validate": "validation", "test": "test", "predict": "predict"}

# The action that ends with a step. Training: the whole batch, since its "training_step" is over before the backward
# pass; all others have nothing behind theirs.
_TRAINING_BATCH: Final = "run_training_batch"
_STEPS: Final = {"validation_step": "validation", "test_step": "test", "predict_step": "predict"}
# The first action of an epoch; what a fit does before, such as moving the model, is no step.
_TRAINING_EPOCH: Final = "run_training_epoch"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an action means for a recording.

    Attributes:
        opens: Whether a recording of what comes first begins with it.
        step: The kind of the step that is over when it is over; None where none is.
        is_failure: Whether the run has failed when it begins.
    """

    opens: bool
    step: str | None
    is_failure: bool


# Trainers name a few dozen actions, again in every step: asking for what each means must cost next to nothing.
@functools.lru_cache(maxsize=1024)
def meaning(action: str, stage: str | None) -> Meaning:
    """Return what an action means.

    Args:
        action: Its name.
        stage: What the Trainer was asked to do; None where it is not known yet, or there is no Trainer.
    """
    is_failure = action.endswith(".on_exception")
    if stage == "fit":
        opens = action == _TRAINING_EPOCH
    elif stage is None:
        # Lightning's own actions before the run, "[LightningModule]Model.prepare_data", are no part of it.
        opens = not action.startswith("[")
    else:
        opens = not is_failure
    return Meaning(opens, _step_that_ends(action, in_trainer=stage is not None), is_failure)


def _step_that_ends(action: str, *, in_trainer: bool) -> str | None:
    if action == _TRAINING_BATCH or (not in_trainer and action.endswith("training_step")):
        return "training"
    return next((kind for function, kind in _STEPS.items() if action.endswith(function)), None)


def is_on_card(trainer: Any) -> bool:
    """Return whether a Trainer's accelerator is Gaudi; without a Trainer, whether this process has opened a card."""
    return isinstance(trainer.accelerator, HPUAccelerator) if trainer is not None else bridge.is_open()


def is_checking_sanity(trainer: Any) -> bool:
    """Return whether a Trainer tries out validation before it trains: those steps count for nothing."""
    return trainer is not None and bool(trainer.sanity_checking)


def describe(trainer: Any) -> dict[str, Any]:
    """Return what a trace is to say of its place: rank, processes, node and machine."""
    if trainer is None:
        return {"host": socket.gethostname()}
    return {
        "rank": int(trainer.global_rank),
        "world_size": int(trainer.world_size),
        "node": int(trainer.node_rank),
        "host": socket.gethostname(),
    }


def steps_ahead(trainer: Any, kind: str) -> float:
    """Return how many steps of a kind there will be at most; infinity where that is not known."""
    if trainer is None:
        return math.inf
    if kind == "training":
        epochs = trainer.max_epochs
        known = math.inf if epochs is None or epochs < 0 else trainer.num_training_batches * epochs
        return min(known, trainer.max_steps) if trainer.max_steps >= 0 else known
    batches: dict[str, Any] = {
        "validation": trainer.num_val_batches,
        "test": trainer.num_test_batches,
        "predict": trainer.num_predict_batches,
    }
    of_kind = batches[kind]
    each_time = sum(of_kind) if isinstance(of_kind, list) else of_kind
    is_repeated = kind == "validation" and str(trainer.state.fn) != "validate"
    return math.inf if is_repeated and trainer.max_epochs != 1 else each_time
