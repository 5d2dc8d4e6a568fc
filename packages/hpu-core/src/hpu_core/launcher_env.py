"""Environment variables of launchers that hpu-core reads itself, or sets for the ranks that it starts.

It needs no framework. hpu-doctor parses those of torchrun, Open MPI and SLURM; Lightning does in a training.
"""

from typing import Final

# Set by torchrun: its agent keeps the store at MASTER_PORT.
AGENT_STORE: Final = "TORCHELASTIC_USE_AGENT_STORE"
# Set by our launcher for the ranks that it starts.
LAUNCHER_PID: Final = "HPU_LAUNCHER_PID"
# Integers that Lightning's own environment reads, or that its launcher sets for the ranks that it starts.
LIGHTNING_INTS: Final = ("LOCAL_RANK", "MASTER_PORT", "NODE_RANK", "GROUP_RANK")
MAX_PORT: Final = 65535

# More digits than any rank or port has. int() refuses thousands of digits with another message.
_MAX_DIGITS: Final = 9


def parse_int(text: str) -> int | None:
    """Return the number that a variable has, None for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
