"""Variable-length data on Intel Gaudi (HPU) without recompilations.

Importing this package does not import torch, Lightning or the Gaudi bridge, starts no process and opens no device. Each
public name is imported from its module on first use.
"""

from typing import TYPE_CHECKING

from hpu_core import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from hpu_bucketing.__about__ import __version__
    from hpu_bucketing.callbacks.graphs import HPUGraphs
    from hpu_bucketing.callbacks.monitor import RecompilationError, RecompilationMonitor, RecompilationWarning
    from hpu_bucketing.callbacks.warmup import HPUWarmup
    from hpu_bucketing.collate import BucketCollate
    from hpu_bucketing.loader import BucketDataLoader
    from hpu_bucketing.plan.bucket_plan import BucketPlan
    from hpu_bucketing.plan.curve import CurvePoint
    from hpu_bucketing.sampler import BatchInfo, BucketBatchSampler

__all__ = [
    "BatchInfo",
    "BucketBatchSampler",
    "BucketCollate",
    "BucketDataLoader",
    "BucketPlan",
    "CurvePoint",
    "HPUGraphs",
    "HPUWarmup",
    "RecompilationError",
    "RecompilationMonitor",
    "RecompilationWarning",
    "__version__",
]

__getattr__, __dir__ = _lazy_exports.lazy_exports(
    __name__,
    {
        "hpu_bucketing.__about__": ["__version__"],
        "hpu_bucketing.callbacks.graphs": ["HPUGraphs"],
        "hpu_bucketing.callbacks.monitor": ["RecompilationError", "RecompilationMonitor", "RecompilationWarning"],
        "hpu_bucketing.callbacks.warmup": ["HPUWarmup"],
        "hpu_bucketing.collate": ["BucketCollate"],
        "hpu_bucketing.loader": ["BucketDataLoader"],
        "hpu_bucketing.plan.bucket_plan": ["BucketPlan"],
        "hpu_bucketing.plan.curve": ["CurvePoint"],
        "hpu_bucketing.sampler": ["BatchInfo", "BucketBatchSampler"],
    },
)
