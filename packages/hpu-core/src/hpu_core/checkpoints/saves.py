"""Saves that all ranks take part in: each writes its files, and then all machines commit theirs, or none does."""

import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

from hpu_core.checkpoints import folders
from hpu_core.checkpoints.files import lock, save_errors


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, as one of them sees them.

    Attributes:
        rank: Global rank of this process.
        local_rank: Rank of this process on its machine.
        broadcast: Function that returns rank 0's object.
        gather: Function that returns the texts of all ranks.
    """

    rank: int
    local_rank: int
    broadcast: Callable[[Any], Any]
    gather: Callable[[str], list[str]]

    def agree(
        self, failure: str, function: Callable[[], object], *, here: bool, undo: Callable[[], object] | None = None
    ) -> None:
        """Call a function on some ranks, and raise an error on all if it fails on one.

        Args:
            failure: Begin of the other ranks' message.
            function: The function.
            here: Whether it is called on this rank.
            undo: Function that is called before an error is raised, but not if ranks are gone.

        Raises:
            Exception: The function's, on the rank where it failed.
            RuntimeError: It failed on others; the message names them and their machines.
        """
        error: Exception | None = None
        try:
            if here:
                function()
        except Exception as caught:  # noqa: BLE001 - raised below.
            error = caught
        place = f"rank {self.rank} on {socket.gethostname()}"
        notes = self.gather("" if error is None else f"{place}: {type(error).__name__}: {error}")
        if failed := [note for note in notes if note]:
            if undo is not None:
                undo()
            raise error or RuntimeError(f"{failure}: {'; '.join(failed)}")


class SharedSave:
    """A save to files that the ranks write together, from its begin to its commit; every rank calls the same methods.

    Attributes:
        new: Path to which the ranks write: a folder, or a file that does not exist.
    """

    def __init__(self, path: "str | os.PathLike[str]", ranks: Ranks, *, as_file: bool = False) -> None:
        """Begin a save.

        Args:
            path: The checkpoint; rank 0's counts. Its parent is created if missing.
            ranks: The ranks.
            as_file: Whether it is one file, which replaces a folder of an earlier save.

        Raises:
            IsADirectoryError: One file is to replace a folder with files that no save has written.
            OSError: The folder cannot be written.
            RuntimeError: Another rank has failed.
            ValueError: The path is a URL of a remote file system.
        """
        self._path = path = folders.follow(local_path(ranks.broadcast(path)))
        self._ranks = ranks
        # The locked record of this machine.
        self._record = contextlib.ExitStack()
        self._failure = f"cannot save the checkpoint {str(path)!r}, the old one is unchanged"
        ranks.agree(self._failure, lambda: folders.take_up(path), here=ranks.rank == 0)
        found = (secrets.token_hex(8), folders.is_folder(path) and not as_file, folders.save_id_of(path))
        self._save_id, is_inside, last_id = ranks.broadcast(found)
        self._stage = folders.stage(path if is_inside else path.parent, self._save_id)
        self.new = self._stage / path.name if as_file else self._stage

        def create() -> None:
            folders.take_up_as(path, last_id)
            if as_file and folders.is_folder(path) and (name := folders.foreign_file(path)):
                message = f"one file cannot replace a folder with {name!r}, which no save has written: save elsewhere"
                raise IsADirectoryError(errno.EISDIR, message, str(path))
            for folder in (path, path.parent):
                folders.remove_stale_stages(folder, keep=self._stage)
            with save_errors(path, path):
                self._stage.mkdir(parents=True, exist_ok=True)
                descriptor = folders.open_record(self._stage)
                self._record.callback(os.close, descriptor)
                os.write(descriptor, self._save_id.encode())
                lock(descriptor, wait=False)

        ranks.agree(self._failure, create, here=ranks.local_rank == 0, undo=self.discard)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the path to which this rank writes its files; other ranks learn of an error in `commit` only."""
        with save_errors(self._path, self._stage):
            yield self.new

    def commit(self, gather: Callable[[str], list[str]] | None = None, error: Exception | None = None) -> None:
        """Make the files the checkpoint, once all ranks have written theirs.

        Rank 0's machine does so first: what it has committed, the others take up at the latest when it is loaded. It
        raises errors as `Ranks.agree`.

        Args:
            gather: Another function of the ranks, for a thread.
            error: What this rank has failed with, so that none commits.
        """
        ranks = self._ranks if gather is None else replace(self._ranks, gather=gather)
        is_first_here = ranks.local_rank == 0

        def written() -> None:
            if error is not None:
                raise error

        def flush() -> None:
            with save_errors(self._path, self._stage):
                folders.flush_tree(self._stage)

        def commit() -> None:
            # Without the file, another machine that shares the file system has done it.
            with contextlib.suppress(*([FileNotFoundError] if ranks.rank else [])):
                folders.commit(self.new, self._path)
            folders.remove(self._stage)

        unfinished = (
            f"{str(self._path)!r} is complete, but could not replace the old checkpoint everywhere; the next load or "
            "save takes it up where that failed"
        )
        try:
            ranks.agree(self._failure, written, here=True, undo=self.discard)
            ranks.agree(self._failure, flush, here=is_first_here, undo=self.discard)
            ranks.agree(unfinished, commit, here=ranks.rank == 0)
            ranks.agree(unfinished, commit, here=is_first_here and ranks.rank != 0)
        finally:
            self._record.close()

    def discard(self) -> None:
        """Remove what the ranks of this machine have written, after an error; each that fails does so."""
        self._record.close()
        with contextlib.suppress(OSError):
            folders.remove(self._stage)


class AsyncSaves:
    """Asynchronous saves of a strategy, one at a time; every rank must call the same methods."""

    def __init__(self) -> None:
        self._pending: Future[None] | None = None
        # Collectives on CPU tensors, for the thread that writes.
        self._group: Any | None = None
        self._writer: ThreadPoolExecutor | None = None

    def finish(self) -> None:
        """Wait until the last save is complete, and raise its error if it has failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def write(self, write: Callable[[Any], None], save: SharedSave) -> None:
        """Write a checkpoint on another thread, and commit it once all ranks have written theirs.

        Args:
            write: Function that writes this rank's files, called with a process group for CPU tensors.
            save: The save.
        """
        if self._writer is None:
            self._writer, self._group = ThreadPoolExecutor(1, "hpu-save"), dist.new_group(backend="gloo")
        self._pending = self._writer.submit(write_and_commit, write, save, self._group)

    def call_after(self, function: Callable[[], object]) -> None:
        """Call a function once the last save is complete, now if it is, and never if it fails."""

        def call(saved: "Future[None]") -> None:
            if saved.exception() is None:
                function()

        if self._pending is None:
            function()
        else:
            self._pending.add_done_callback(call)

    def close(self) -> None:
        """End the thread."""
        if self._writer is not None:
            self._writer.shutdown()
        self._writer = self._group = None


def write_and_commit(write: Callable[[Any], None], save: SharedSave, group: Any) -> None:
    """Write this rank's files, and commit the save if all ranks have written; see `SharedSave.commit`."""

    def gather(text: str) -> list[str]:
        texts = [""] * dist.get_world_size(group)
        dist.all_gather_object(texts, text, group=group)
        return texts

    failure: Exception | None = None
    try:
        with save.writing():
            write(group)
    except BaseException as error:  # noqa: BLE001 - raised by `commit`, so that no rank waits for this one.
        # torch's CheckpointException is no Exception.
        failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    save.commit(gather, failure)


def local_path(path: "str | os.PathLike[str]") -> Path:
    """Return the absolute path of a checkpoint that several ranks write or read.

    Raises:
        ValueError: It is a URL of a remote file system, which torch and DeepSpeed take for the name of a local folder.
    """
    if get_protocol(str(path)) not in {"file", "local"}:
        raise ValueError(f"a checkpoint of several files must have a local path, got {str(path)!r}: mount the storage")
    return Path(url_to_fs(str(path))[1])


def locate(path: "str | os.PathLike[str]", ranks: Ranks) -> Path:
    """Return where a checkpoint is, after what a killed save has left of its commit is taken up; all ranks call this.

    Raises:
        OSError: A commit cannot be completed, such as in a read-only folder.
        RuntimeError: A machine has the checkpoint of another save than rank 0's; the message names it.
    """
    found = local_path(ranks.broadcast(path))
    # A commit is completed where Lightning's link to the last checkpoint leads.
    found = found.resolve() if found.is_symlink() else found
    failure = f"cannot load the checkpoint {str(found)!r}"
    ranks.agree(failure, lambda: folders.take_up(found), here=ranks.rank == 0)
    save_id = ranks.broadcast(folders.save_id_of(found))

    def check() -> None:
        folders.take_up_as(found, save_id)
        if save_id is not None and folders.save_id_of(found) not in {None, save_id}:
            raise RuntimeError(
                f"{str(found)!r} must be of one save on all machines, and {socket.gethostname()} has another one than "
                "rank 0's machine: load an older checkpoint, or bring one that all machines have"
            )

    ranks.agree(failure, check, here=ranks.local_rank == 0 and ranks.rank != 0)
    return found
