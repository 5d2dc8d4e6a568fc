"""A build of the bridge with other behaviours: VERIFY_MUTATIONS names the mutations, which follow its import.

It is on PYTHONPATH, so that every process of a command has it and none of them knows.
"""

import os
import sys
from pathlib import Path

from hpu_sim.common.post_import import after_import


def _apply() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import mutations

    for name in os.environ["VERIFY_MUTATIONS"].split(","):
        mutations.apply(name)


if os.environ.get("VERIFY_MUTATIONS"):
    after_import("habana_frameworks.torch", _apply)
