"""A build of the bridge with other behaviours: VERIFY_MUTATIONS names the mutations, which follow its import.

It is on PYTHONPATH, so that every process of a command has it and none of them knows.
"""

import functools
import os
import sys
from pathlib import Path

from hpu_sim.common.post_import import after_import

# The register imports torch, which may import the bridge, and mutations need both.
_missing = {"habana_frameworks.torch", "hpu_doctor.verify.register"}


def _imported(name: str) -> None:
    _missing.discard(name)
    if not _missing:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        import mutations

        for mutation in os.environ["VERIFY_MUTATIONS"].split(","):
            mutations.apply(mutation)


if os.environ.get("VERIFY_MUTATIONS"):
    for module in tuple(_missing):
        after_import(module, functools.partial(_imported, module))
