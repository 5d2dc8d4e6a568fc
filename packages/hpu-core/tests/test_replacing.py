"""A file that is replaced whole, or not at all."""

import errno
import fcntl
import os
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpu_core._replacing import replacing


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file with the content "old", alone in its folder."""
    target = tmp_path / "last.ckpt"
    target.write_text("old")
    return target


@pytest.fixture
def umask() -> Iterator[int]:
    """A umask that is not the usual one."""
    before = os.umask(0o026)
    yield 0o026
    os.umask(before)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """A process that may write no file of more than 64 KiB; the kernel refuses the rest as on a full disk."""
    size = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, size[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, size)
    signal.signal(signal.SIGXFSZ, handler)


def _save(path: Path, content: bytes, error: BaseException | None = None) -> None:
    """Write `content` in place of `path`; then raise `error`, if given."""
    with replacing(path) as file:
        file.write(content)
        if error is not None:
            raise error


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_content_replaces_the_old(target: Path) -> None:
    """After the block the file holds what was written, and nothing else is in the folder."""
    _save(target, b"new")

    assert (target.read_text(), _files(target.parent)) == ("new", ["last.ckpt"])


def test_the_old_content_stays_until_the_end(target: Path) -> None:
    """Inside the block the target is as it was, however much has been written."""
    with replacing(target) as file:
        file.write(b"new" * 1_000_000)
        file.flush()

        assert target.read_text() == "old"


def test_an_exception_leaves_the_old_content(target: Path) -> None:
    """A block that raises changes nothing, leaves nothing behind, and its exception comes through."""
    with pytest.raises(KeyError, match="step"):
        _save(target, b"new", KeyError("step"))

    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


def test_an_interrupt_leaves_the_old_content(target: Path) -> None:
    """Ctrl-C while saving is like any exception."""
    with pytest.raises(KeyboardInterrupt):
        _save(target, b"new", KeyboardInterrupt())

    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_said_and_leaves_the_old_content(target: Path) -> None:
    """The kernel's reason is in the error, with its number and the path, and what it means for the old file."""
    with pytest.raises(OSError, match="cannot save the checkpoint, and what was there is untouched") as raised:
        _save(target, bytes(1 << 22))

    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(target))
    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


@pytest.mark.usefixtures("full_disk")
def test_a_failed_write_is_said_even_if_it_is_covered_up(target: Path) -> None:
    """A writer that turns the error into another one (torch's does) cannot hide the kernel's reason."""

    def save() -> None:
        with replacing(target) as file:
            try:
                file.write(bytes(1 << 22))
            except OSError:
                raise RuntimeError("unexpected pos") from None

    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        save()


@pytest.mark.usefixtures("full_disk")
def test_a_failure_of_the_last_flush_counts(target: Path) -> None:
    """What is still in the buffer at the end must reach the disk as well."""
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        _save(target, bytes(100_000))

    assert target.read_text() == "old"


@pytest.mark.skipif(os.geteuid() == 0, reason="Requires: a user to whom permissions apply")
def test_a_read_only_folder_is_said(target: Path) -> None:
    """The error is the one that fits the kernel's reason."""
    target.parent.chmod(0o500)

    with pytest.raises(PermissionError, match="cannot save the checkpoint"):
        _save(target, b"new")


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    """The error is the one that fits the kernel's reason."""
    with pytest.raises(FileNotFoundError, match="cannot save the checkpoint"):
        _save(tmp_path / "no" / "file", b"new")


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    """A folder at the target (a sharded checkpoint, for one) is refused before anything is written."""
    with pytest.raises(IsADirectoryError, match="cannot save the checkpoint"):
        _save(tmp_path, b"new")


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path, umask: int) -> None:
    """The umask counts, as with `open`."""
    _save(tmp_path / "new.ckpt", b"new")

    assert stat.S_IMODE((tmp_path / "new.ckpt").stat().st_mode) == 0o666 & ~umask


def test_a_replaced_file_passes_its_mode_on(target: Path) -> None:
    """Somebody who opened the old checkpoint to a group does not have to do it again."""
    target.chmod(0o664)

    _save(target, b"new")

    assert stat.S_IMODE(target.stat().st_mode) == 0o664


def test_a_symlink_is_replaced(target: Path) -> None:
    """`last.ckpt` may link to the best checkpoint, which must not be overwritten."""
    link = target.with_name("link.ckpt")
    link.symlink_to(target.name)

    _save(link, b"new")

    assert (link.is_symlink(), link.read_text(), target.read_text()) == (False, "new", "old")


def test_a_dangling_symlink_is_replaced(tmp_path: Path) -> None:
    """A link to a checkpoint that was removed is no obstacle."""
    link = tmp_path / "last.ckpt"
    link.symlink_to("removed.ckpt")

    _save(link, b"new")

    assert (link.is_symlink(), link.read_text()) == (False, "new")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """What is no file is not replaced: /dev/null must stay what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _save(pipe, b"new")
    content = os.read(reader, 10)
    os.close(reader)

    assert (content, stat.S_ISFIFO(pipe.stat().st_mode)) == (b"new", True)


def test_leftovers_of_dead_processes_are_removed(target: Path) -> None:
    """The partial file of a killed process, which nobody holds a lock on, goes with the next save in the folder."""
    (target.parent / ".hpu-core-0123456789abcdef.partial").touch()

    _save(target, b"new")

    assert _files(target.parent) == ["last.ckpt"]


def test_the_file_of_a_living_writer_stays(target: Path) -> None:
    """Two processes may save into the same folder at the same time."""
    other = target.with_name("other.ckpt")

    with replacing(other) as first:
        first.write(b"first")
        with replacing(target) as second:
            second.write(b"second")

    assert (other.read_text(), target.read_text()) == ("first", "second")


def test_other_hidden_files_stay(target: Path) -> None:
    """Only files that this module made are taken for leftovers."""
    (target.parent / ".keep.partial").touch()

    _save(target, b"new")

    assert _files(target.parent) == [".keep.partial", "last.ckpt"]


def test_two_writers_of_one_file_do_not_mix(target: Path) -> None:
    """The one that ends last wins, whole."""
    with replacing(target) as first:
        first.write(b"1" * 100)
        with replacing(target) as second:
            second.write(b"2" * 50)

    assert target.read_bytes() == b"1" * 100


def test_a_file_taken_for_a_leftover_is_made_anew(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove the new file before it is locked; nothing is lost by that."""
    lock = fcntl.flock
    locked: list[int] = []

    def late_lock(descriptor: int, operation: int) -> None:
        if not locked:
            next(target.parent.glob("*.partial")).unlink()
        locked.append(descriptor)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late_lock)

    _save(target, b"new")

    assert (len(locked), target.read_text(), _files(target.parent)) == (2, "new", ["last.ckpt"])


def test_a_file_system_without_locks_still_saves(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks a leftover cannot be told from a file being written, and stays."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    leftover = target.parent / ".hpu-core-0123456789abcdef.partial"
    leftover.touch()
    monkeypatch.setattr(fcntl, "flock", no_locks)

    _save(target, b"new")

    assert (target.read_text(), _files(target.parent)) == ("new", [leftover.name, "last.ckpt"])


def test_content_reaches_the_disk_before_its_name(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, then name, then folder: after a power cut there is the old file or the new one."""
    done: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        done.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def replace(self: Path, to: Path) -> Path:
        done.append("name")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)

    _save(target, b"new")

    assert done == ["sync file", "name", "sync folder"]
