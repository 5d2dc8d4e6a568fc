"""Swap directories: one per process and NVMe path, removed when no longer needed.

DeepSpeed uses the same file names in `nvme_path` for every job, clears directories there when it starts and leaves its
files behind. Without directories of their own, two jobs on one host would overwrite each other's weights. A process
that is killed leaves its directory.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "hpu-deepspeed-"
_SUFFIX: Final = ".swap"


class SwapDir:
    """Directory of this process, removed with this object, at the latest at exit.

    It holds weights and optimizer states. Keep a reference for as long as these are used.

    Raises:
        OSError: The directory cannot be created.
    """

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=parent))
        weakref.finalize(self, _remove, self.path, os.getpid())


def create(offloads: Iterable[dict[str, Any]]) -> list[SwapDir]:
    """Create a swap directory for each distinct `nvme_path` of sections of DeepSpeed's configuration, and return them.

    Writes their paths to the sections.

    Raises:
        OSError: A directory cannot be created.
    """
    created: dict[Path, SwapDir] = {}
    for options in offloads:
        parent = Path(str(options["nvme_path"]))
        if parent.name.startswith(_PREFIX) and parent.suffix == _SUFFIX:
            # The directory of an earlier use of the strategy.
            parent = parent.parent
        if parent not in created:
            created[parent] = SwapDir(parent)
        options["nvme_path"] = str(created[parent].path)
    return list(created.values())


def _remove(path: Path, owner: int) -> None:
    # Forked processes have a copy of the object but do not own the directory.
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
