"""Defaults of torch's DistributedDataParallel on Gaudi.

Intel's examples and Optimum Habana use these values throughout; they were not measured here.
"""

from typing import Final

# In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device.
BUCKET_CAP_MB: Final = 230
# Saves a copy of all gradients in memory and in every step.
GRADIENT_AS_BUCKET_VIEW: Final = True
# Finding unused parameters traverses the autograd graph and synchronizes with the device in every step.
FIND_UNUSED_PARAMETERS: Final = False
