"""Timeouts and error patterns of the failure tests.

The test program fails on one rank, in the fourth batch. With `--held`, the other ranks block in a call that never
returns, as in an HCCL collective; the simulator's collectives raise an error when a connection breaks.
"""

import re

# The strategy's timeout, in seconds. It includes the rendezvous.
TIMEOUT = 60
# Shorter for a rank that hangs, because that is detected only near the timeout.
HANG_TIMEOUT = 30

RANK = r"rank {rank} \(pid \d+ on \S+\)"


def has_rank_error(output: str, rank: int, cause: str) -> bool:
    """Return whether the output names this rank and cause, in a RankFailedError or by a rank that is held."""
    return re.search(f"(RankFailedError|aborting): {RANK.format(rank=rank)} {cause}", output) is not None
