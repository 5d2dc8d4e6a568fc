"""Plans: memory, collectives and step time of an unmodified training script, predicted without a card.

One process runs the program as the first rank of the job. Tensors on ``hpu`` have shapes and no data. The command is
``hpu-sim plan``.

A program without a Trainer marks its training step, which has no effect outside of a plan::

    for batch in loader:
        with plan.step():
            train(batch)

The data flow one way: ``command`` records each choice of a user in a process of its own (``worker``), in which
``execution`` runs the program and ``recorder`` records it; the models of ``hpu_sim.prediction`` read the recording;
``compare`` makes a plan of it, ``search`` the advice, and ``view`` a ``hpu_sim.common.document`` for terminals and
browsers.
Importing this package imports neither torch nor Lightning.
"""

from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.schema import Plan
from hpu_sim.plan.session import step

__all__ = ["Plan", "PlanError", "step"]
