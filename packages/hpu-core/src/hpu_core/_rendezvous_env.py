"""Default MASTER_ADDR and MASTER_PORT that the bridge's import sets, and their removal.

The import sets both to a fixed endpoint where they are unset, and all jobs of a machine would share one port. What this
process has inherited is the user's or a launcher's, unless a parent's bridge has set it. A program that sets the same
values itself gets another port, as without them.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BRIDGE: Final = "habana_frameworks.torch"
"""Package of the bridge."""

_DEFAULTS: Final = {"MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}
# The bridge's import sets this variable as well.
_MARKER: Final = "TORCHINDUCTOR_COMPILE_THREADS"
# Launchers set one of these with an endpoint of their own.
_RANKS: Final = ("GROUP_RANK", "LOCAL_RANK", "NODE_RANK", "RANK")


def clear() -> None:
    """Remove what the bridge's import has set in this process, or in a parent that has set no rank."""
    inherited = inherited_names()
    is_of_parent = (
        inherited >= {_MARKER, *_DEFAULTS}
        and _DEFAULTS.items() <= os.environ.items()
        and os.environ.keys().isdisjoint(_RANKS)
    )
    is_loaded = sys.modules.get(BRIDGE) is not None
    for name, value in _DEFAULTS.items():
        if os.environ.get(name) == value and (is_of_parent or (is_loaded and name not in inherited)):
            del os.environ[name]


@contextlib.contextmanager
def preserve() -> Iterator[None]:
    """Restore the variables after the body."""
    before = {name: os.environ.get(name) for name in _DEFAULTS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            elif os.environ.get(name) != value:
                os.environ[name] = value


def inherited_names() -> frozenset[str]:
    """Return the names of the variables that this process inherited, or has if the system does not list them."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return frozenset(os.environ)
    return frozenset(os.fsdecode(entry.partition(b"=")[0]) for entry in block.split(b"\0"))
