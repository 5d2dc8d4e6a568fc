"""Swap directories: one per process and NVMe path, removed when no longer needed.

DeepSpeed uses the same file names in `nvme_path` for every job, clears directories there when it starts and leaves its
files behind. Without directories of their own, two jobs on one host would overwrite each other's weights.
"""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hpu_core.checkpoints.files import lock, locked

_PREFIX: Final = "hpu-deepspeed-"

# The `nvme_path` in which each swap directory of this process was created. The configuration of a strategy that is used
# again names the swap directory instead.
_parents: dict[str, Path] = {}


class SwapDir:
    """Directory locked by this process and removed with this object, at the latest at exit.

    It holds weights and optimizer states. Keep a reference for as long as these are used.

    Raises:
        OSError: The directory cannot be created.
    """

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY)
        # Some network file systems have no locks; stale directories are not removed there.
        lock(self._lock, wait=True)
        weakref.finalize(self, _remove, self.path, self._lock, os.getpid())


def create(offloads: Iterable[dict[str, Any]]) -> list[SwapDir]:
    """Create a swap directory for each distinct `nvme_path` of sections of DeepSpeed's configuration, and return them.

    Writes their paths to the sections, and removes stale directories of killed processes.

    Raises:
        OSError: A directory cannot be created.
    """
    created: dict[Path, SwapDir] = {}
    for options in offloads:
        configured = str(options["nvme_path"])
        parent = _parents.get(configured, Path(configured))
        if parent not in created:
            # Or other processes could remove a new directory before it is locked.
            with locked(parent):
                _remove_stale(parent)
                created[parent] = SwapDir(parent)
        options["nvme_path"] = str(created[parent].path)
        _parents[options["nvme_path"]] = parent
    return list(created.values())


def _remove_stale(parent: Path) -> None:
    """Remove swap directories that no process has locked; the system releases a process's locks when it dies."""
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # Nothing else: opening a pipe would block.
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if lock(descriptor, wait=False):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _remove(path: Path, lock: int, owner: int) -> None:
    # Forked processes have a copy of the object but do not own the directory.
    if os.getpid() == owner:
        _parents.pop(str(path), None)
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        # When this rank has failed, Lightning kills the others, which cannot remove theirs.
        with contextlib.suppress(OSError), locked(path.parent):
            _remove_stale(path.parent)
