"""Extensions of torch: optimizers, normalization and kernels that are fused on a card."""

from pathlib import Path

from hpu_sim.features import features

# HMP lies in a folder of its own: where the release has none, nothing must find it.
if features().hmp:
    __path__.append(str(Path(__file__).parent / "_until_1_12"))
