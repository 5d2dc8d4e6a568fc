"""Failures in the program of these tests.

The program fails on one rank, in the fourth batch. With `--held`, the others wait for it in a call that never returns,
as HCCL's collectives do; those of the simulator fail when a connection breaks.
"""

import re

# The strategy's timeout in seconds, which is also how long ranks wait for each other at the start.
TIMEOUT = 60
# The same where a rank hangs, which is detected after most of it.
HANG_TIMEOUT = 30

RANK = r"rank {rank} \(pid \d+ on \S+\)"


def names(output: str, rank: int, cause: str) -> bool:
    """Return whether a RankFailedError names a rank and a cause."""
    return re.search(f"RankFailedError: {RANK.format(rank=rank)} {cause}", output) is not None
