"""Extensions of torch: fused optimizers, normalization and attention."""

from pathlib import Path

from hpu_sim.device.features import features

# HMP is in a folder of its own, so that `find_spec` does not find it in releases without it.
if features().hmp:
    __path__.append(str(Path(__file__).parent / "_until_1_12"))
