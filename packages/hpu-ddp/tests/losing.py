"""What tests of trainings that lose a rank have in common.

The program fails on one rank, in the fourth batch; `--held` has the others wait for it in a call that never returns,
as HCCL's collectives do. (Those of the simulator fail when a connection breaks, which is how the other tests go.)
"""

import re

# Within which everything has to end. As long, because ranks wait that long for each other at the start, too.
TIMEOUT = 20

RANK = r"rank {rank} \(process \d+ on \S+\)"


def names(output: str, rank: int, what: str) -> bool:
    """Tell whether an error names a rank and says what became of it."""
    return re.search(f"RankFailedError: {RANK.format(rank=rank)} {what}", output) is not None
