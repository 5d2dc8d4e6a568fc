"""The bridge's part in ``torch.profiler``: what else can be traced, and torch's classes changed to allow for it."""

from __future__ import annotations

import enum

from habana_frameworks.torch import _profiler, _profiler_until_1_19
from hpu_sim.features import features

if features().after_1_19:

    class DebugActivity(enum.Enum):
        """Calls that a trace can hold besides operators and kernels."""

        BRIDGE_FUNCTION_CALLS = 2

else:

    class DebugActivity(enum.Enum):  # type: ignore[no-redef] # one of the two, by release
        """Calls that a trace can hold besides operators and kernels."""

        SYNAPSE_FUNCTION_CALLS = 1
        BRIDGE_FUNCTION_CALLS = 2


_profiler.accept_hpu()
if not features().after_1_19:
    _profiler_until_1_19.replace_classes()
