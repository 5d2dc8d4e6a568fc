"""Training on two devices in which rank 1 raises an error in its third batch, and a callback saves a checkpoint then.

Arguments: "full", "sharded" or "async", and the folder of the checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.modules import UNITS, ImageClassifier, make_trainer, train

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy


class FailingClassifier(ImageClassifier):
    """Classifier that fails on rank 1."""

    def training_step(self, batch: tuple[Any, Any], index: int) -> Any:
        """Return the loss, or fail."""
        if (self.global_rank, index) == (1, 2):
            raise ValueError("invalid batch")
        return super().training_step(batch, index)


def main() -> None:
    """Train."""
    kind, folder = sys.argv[1:]
    state = {"state_dict_type": "full"} if kind == "full" else {"state_dict_type": "sharded"}
    strategy: Any = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), async_save=kind == "async", **state)  # type: ignore[arg-type] # One of the literals.
    callback = frameworks.current().pytorch("callbacks").OnExceptionCheckpoint(folder)
    train(FailingClassifier(), make_trainer(strategy=strategy, callbacks=[callback], enable_checkpointing=True))


if __name__ == "__main__":
    main()
