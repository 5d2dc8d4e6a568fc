"""Defaults of torch's DistributedDataParallel on Gaudi.

Intel's examples and Optimum Habana use these values throughout; they were not measured here.
"""

from typing import Final

# In MiB. Each collective has a fixed cost on the device, which torch's buckets of 25 MiB do not hide.
BUCKET_CAP_MB: Final = 230
# Gradients are views of the buckets, which saves a copy of all gradients in memory and in every step.
GRADIENT_AS_BUCKET_VIEW: Final = True
# The search for unused parameters walks the graph and synchronizes with the device in every step.
FIND_UNUSED_PARAMETERS: Final = False
