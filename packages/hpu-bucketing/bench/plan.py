"""Time of a plan for 1,000,000 lengths up to 8,192, which the package promises to make in at most 2 s.

Usage: `python bench/plan.py`; `nox -s bench` calls it.
"""

from __future__ import annotations

import time

import numpy as np

from hpu_bucketing import BucketPlan

_SAMPLES = 1_000_000
_LONGEST = 8192
_LIMIT = 2.0


def main() -> int:
    """Print the processor time for two alignments; return 1 if one takes longer than the limit."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(6.0, 0.9, _SAMPLES).astype(np.int64), 1, _LONGEST)
    slowest = 0.0
    for align in (128, 1):
        start = time.process_time()
        plan = BucketPlan.from_lengths(lengths, batch_size=32, align=align)
        seconds = time.process_time() - start
        slowest = max(slowest, seconds)
        print(f"align {align:3}: {seconds:.2f} s, {len(plan.boundaries)} buckets")
    return int(slowest > _LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
