"""Folders for what DeepSpeed offloads to NVMe: one for each process, removed when nothing in it is needed any more.

DeepSpeed writes into `nvme_path` under names that all trainings share, empties folders there when it starts, and leaves
its files behind. Two trainings on one machine would destroy each other's weights, as would two of one process.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "hpu-deepspeed-"

# In which `nvme_path` each folder of this process was made: a strategy that is used again has the folder's in its
# configuration.
_places: dict[str, Path] = {}


class Folder:
    """A folder that is locked by this process, and removed with this object or at the end of the process.

    Weights and optimizer states are in it, so that it must outlive the training for as long as these are used.

    Args:
        place: The folder that it is made in.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, place: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = os.open(self.path, os.O_RDONLY)
        # Network file systems may not know locks; there, what a killed process has left is not removed.
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        weakref.finalize(self, _remove, self.path, self._lock, os.getpid())


def make(offloads: Iterable[dict[str, Any]]) -> list[Folder]:
    """Make a folder for each `nvme_path`, and have the configuration name it instead.

    What processes have left there that were killed is removed.

    Args:
        offloads: What of `offload_param` and `offload_optimizer` in DeepSpeed's configuration goes to NVMe, which is
            changed.

    Returns:
        The folders.

    Raises:
        OSError: A folder cannot be made.
    """
    folders: dict[Path, Folder] = {}
    for options in offloads:
        given = str(options["nvme_path"])
        place = _places.get(given, Path(given))
        if place not in folders:
            with _locked(place):
                _remove_abandoned(place)
                folders[place] = Folder(place)
        options["nvme_path"] = str(folders[place].path)
        _places[options["nvme_path"]] = place
    return list(folders.values())


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from looking for abandoned folders, while one is made that has no lock yet."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(place: Path) -> None:
    """Remove the folders that no process has locked, since the system takes a process's locks from it when it dies."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _remove(path: Path, lock: int, owner: int) -> None:
    # Processes that were forked have a copy of the object, and not the folder.
    if os.getpid() == owner:
        _places.pop(str(path), None)
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        # Ranks that Lightning has killed because this one failed leave theirs.
        with contextlib.suppress(OSError), _locked(path.parent):
            _remove_abandoned(path.parent)
