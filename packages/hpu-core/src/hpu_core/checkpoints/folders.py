"""Checkpoints that are folders: a save replaces what saves have written there, and leaves all other files alone.

A save writes to a *stage*, a hidden folder inside of the checkpoint, or next to it while there is none. A complete one
is committed by renames alone:

1. It is renamed to READY. From here on the save is complete, and `take_up` does the rest after a kill.
2. The files of earlier saves are moved to OLD, `.metadata` first, and READY is renamed to MOVING.
3. The new files are moved to their places, `.metadata` last, and OLD is removed.

No old file is in place when the first new one gets there, so a program that reads meanwhile finds the old checkpoint,
the new one or missing files, and never a mixture.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpu_core.checkpoints.files import PARTIAL, PREFIX, flush, lock, locked

RECORD: Final = f"{PREFIX}save"
"""File of a checkpoint with the id of the save that wrote it, the same on all machines; it is locked by who commits."""

_READY: Final = f"{PREFIX}ready"
_MOVING: Final = f"{PREFIX}moving"
_OLD: Final = f"{PREFIX}old"

# torch.distributed.checkpoint's file that names all others.
_INDEX: Final = ".metadata"
# Folder of DeepSpeed's files in Lightning's checkpoints.
_TAG: Final = "checkpoint"
# What saves write: torch 2.0 to 2.15 with Lightning's `meta.pt`, and DeepSpeed.
_WRITTEN: Final = re.compile(
    rf"\.metadata(\.tmp)?|meta\.pt|__\d+_\d+\.distcp|latest|zero_to_\w+\.py|{_TAG}/[^/]*_states\.pt"
)

# In seconds. Clients of a network file system may see a folder as it was a minute ago.
_STILL: Final = 120.0


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def follow(path: Path) -> Path:
    """Return where a checkpoint is written: at `path`, or where it links to."""
    # Lightning links `last.ckpt` to another checkpoint in the same folder: such a link is replaced.
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        return path.resolve()
    return path.absolute()


def stage(folder: Path, save_id: str) -> Path:
    """Return the path of a save's stage in a folder."""
    return folder / f"{PREFIX}{save_id}{PARTIAL}"


def open_record(folder: Path) -> int:
    """Open the record of a checkpoint or a stage, which is created if missing."""
    return os.open(folder / RECORD, os.O_RDWR | os.O_CREAT, 0o666)


def save_id_of(path: Path) -> str | None:
    """Return the id of the save that wrote a checkpoint, None if it has none."""
    try:
        return (path / RECORD).read_text() or None
    except OSError:
        return None


def foreign_file(folder: Path) -> str | None:
    """Return a file in a folder that no save has written, None if there is none."""
    names = sorted(_files(folder))
    return next((name for name in names if not _WRITTEN.fullmatch(name) and not name.startswith(PREFIX)), None)


def remove_stale_stages(folder: Path, keep: Path) -> None:
    """Remove the stages of processes that have exited, except one."""
    for stale in folder.glob(f"{PREFIX}*{PARTIAL}/{RECORD}"):
        # Suppressed: it is removed by its writer, or belongs to another user.
        with contextlib.suppress(OSError), stale.open("rb+") as file:
            is_stale = stale.parent != keep and lock(file.fileno(), wait=False)
            if is_stale:
                shutil.rmtree(stale.parent)
            elif is_stale is None:
                name = str(stale.parent)
                warnings.warn(f"{name!r} may be of a killed save: this file system has no locks to tell", stacklevel=2)


def commit(new: Path, path: Path) -> None:
    """Make a complete and flushed folder or file the checkpoint at a path; other files in a folder there stay.

    Raises:
        FileNotFoundError: Another machine that shares the file system has done so; `path` is untouched.
        IsADirectoryError: A folder has the name of a file of the checkpoint; `path` is untouched.
    """
    if is_folder(path) and new.is_dir():
        _merge(new, path)
    else:
        replace(new, path)
    remove(_previous(path))


def take_up(path: Path) -> None:
    """Complete a commit that a kill has interrupted, after another process that is alive has completed it."""
    ready = _ready_beside(path)
    if os.path.lexists(ready):
        _finish_replacement(ready, path)
    elif is_folder(path) and ((path / _READY).is_dir() or (path / _MOVING).is_dir()):
        with locked(open_record(path)) as is_locked:
            if not is_locked:
                _wait_until_still(path)
            _finish_merge(path)


def take_up_as(path: Path, save_id: str | None) -> None:
    """Complete a commit, also one that has not begun here, if another machine has committed the save of this id."""
    take_up(path)
    if save_id is None or save_id_of(path) == save_id:
        return
    for folder in (path, path.parent):
        if stage(folder, save_id).is_dir():
            commit(stage(folder, save_id), path)
            return


def replace(new: Path, path: Path) -> None:
    """Replace a file, folder or link as a whole, in one step unless a folder is one of the two.

    After a kill between two steps, the previous content has a name beside it that Lightning's `ckpt_path="last"` finds.
    Raises a FileNotFoundError if there is no `new`.
    """
    if not os.path.lexists(path) or not (is_folder(path) or new.is_dir()):
        new.replace(path)
        flush(path.parent)
        return
    # Another replacement, which was killed.
    take_up(path)
    ready = _ready_beside(path)
    new.rename(ready)
    _finish_replacement(ready, path)


def flush_tree(path: Path) -> None:
    """Flush a file, or a folder with all that is in it, to disk, as `flush`."""
    if path.is_file():
        flush(path)
    for parent, _, files in os.walk(path):
        for name in files:
            flush(Path(parent, name))
        flush(Path(parent))


def remove(path: Path) -> None:
    """Remove a directory, a file or a symbolic link, without following the link."""
    while is_folder(path):
        # Hosts that share the file system remove the directory at the same time.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _merge(new: Path, path: Path) -> None:
    for name in _files(new):
        if is_folder(path / name):
            raise IsADirectoryError(errno.EISDIR, "a file of the checkpoint has the name of a folder", str(path / name))
    # Another save, which was killed.
    take_up(path)
    with locked(open_record(path)):
        new.rename(path / _READY)
        flush(path)
        _finish_merge(path)


def _finish_merge(path: Path) -> None:
    """Complete a merge from the step that its folders show."""
    ready, moving, old = (path / name for name in (_READY, _MOVING, _OLD))
    if ready.is_dir():
        names = (_files(ready) | _written_files(path)) - {RECORD}
        # Sorted by whether they are the index, so that it is the first one.
        _move(
            (name for name in sorted(names, key=lambda name: name != _INDEX) if os.path.lexists(path / name)), path, old
        )
        ready.rename(moving)
    if moving.is_dir():
        _move(sorted(_files(moving) - {RECORD}, key=lambda name: name == _INDEX), moving, path)
        if save_id := save_id_of(moving):
            (path / RECORD).write_text(save_id)
        remove(old)
        remove(moving)


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    """Move files to another folder under the same names, in this order."""
    folders = {target}
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(target / name)
        folders.add((target / name).parent)
    for folder in folders:
        flush(folder)


def _files(folder: Path) -> set[str]:
    """Return the files in a folder, and the links, relative to it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not is_folder(path)}


def _written_files(folder: Path) -> set[str]:
    """Return the files in a folder that saves have written, relative to it; only where they write them."""
    names = [entry.name for entry in folder.iterdir()]
    if is_folder(folder / _TAG):
        names += [f"{_TAG}/{entry.name}" for entry in (folder / _TAG).iterdir()]
    return {name for name in names if _WRITTEN.fullmatch(name) and not is_folder(folder / name)}


def _finish_replacement(ready: Path, path: Path) -> None:
    """Move complete content to a path, whose previous content is kept until then."""
    previous = _previous(path)
    with locked(os.open(path.parent, os.O_RDONLY)):
        # Unless another process has completed it.
        if os.path.lexists(ready):
            if os.path.lexists(path):
                remove(previous)
                path.rename(previous)
            ready.rename(path)
            flush(path.parent)
            remove(previous)


def _wait_until_still(folder: Path) -> None:
    """Wait until nothing moves in a folder: without locks, this tells that no process commits there."""
    warnings.warn(
        f"a save was interrupted in {str(folder)!r}, and this file system has no locks to tell whether its process is "
        f"alive: it is completed once nothing has moved there for {_STILL:.0f} s",
        stacklevel=2,
    )
    before: set[str] = set()
    while (names := _files(folder)) != before:
        before = names
        time.sleep(_STILL)


def _previous(path: Path) -> Path:
    """Return a path for the previous content, which Lightning takes for a last checkpoint if `path` is one."""
    return path.with_name(f"{path.stem}{PREFIX.replace('.', '-')}previous{path.suffix}")


def _ready_beside(path: Path) -> Path:
    """Return a path beside another one that depends on its name only."""
    return path.with_name(f"{PREFIX}{hashlib.sha256(path.name.encode()).hexdigest()[:16]}.ready")
