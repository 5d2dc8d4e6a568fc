"""Debug activities of ``torch.profiler``. Importing this module patches torch's profilers."""

from __future__ import annotations

import enum

from habana_frameworks.torch import _profiler, _profiler_until_1_19
from hpu_sim.device.features import features

if features().after_1_19:

    class DebugActivity(enum.Enum):
        """Further calls that a trace can record."""

        BRIDGE_FUNCTION_CALLS = 2

else:

    class DebugActivity(enum.Enum):  # type: ignore[no-redef] # the release selects one of the two
        """Further calls that a trace can record."""

        SYNAPSE_FUNCTION_CALLS = 1
        BRIDGE_FUNCTION_CALLS = 2


_profiler.patch_profilers()
if not features().after_1_19:
    _profiler_until_1_19.replace_classes()
