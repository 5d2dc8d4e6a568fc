"""Choice of buckets: pure functions of lengths.

| module | contents |
|---|---|
| `distribution` | lengths to a histogram on the alignment, and to the distribution of batch maxima |
| `optimum` | boundaries of least cost, by dynamic programming |
| `curve` | padding, compilations, waits and time for each number of buckets, and the knee |
| `bucket_plan` | `BucketPlan`, the boundaries with the reasons for them |

Imports go one way: nothing here imports torch or Lightning.
"""
