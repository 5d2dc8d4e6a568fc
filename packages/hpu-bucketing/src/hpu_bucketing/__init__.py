"""Variable-length data on Intel Gaudi (HPU) without recompilations.

Importing this package does not import torch, Lightning or the Gaudi bridge, starts no process and opens no device. Each
public name is imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_bucketing.__about__ import __version__
    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["BucketPlan", "__version__"]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_bucketing.__about__": ["__version__"],
        "hpu_bucketing.plan.bucket_plan": ["BucketPlan"],
    },
)
