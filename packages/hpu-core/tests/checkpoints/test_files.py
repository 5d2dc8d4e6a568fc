"""Tests of replacing a file atomically."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpu_core.checkpoints.files import atomic_write


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file with the content "old", alone in its folder."""
    target = tmp_path / "last.ckpt"
    target.write_text("old")
    return target


@pytest.fixture
def umask() -> Iterator[int]:
    """An unusual umask."""
    before = os.umask(0o026)
    yield 0o026
    os.umask(before)


def _save(path: Path, content: bytes, error: BaseException | None = None) -> None:
    """Replace `path` by `content`, then raise `error` if given."""
    with atomic_write(path) as file:
        file.write(content)
        if error is not None:
            raise error


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_old_content_stays_until_the_end(target: Path) -> None:
    with atomic_write(target) as file:
        file.write(b"new" * 1_000_000)
        file.flush()

        assert target.read_text() == "old"
    assert (target.read_bytes(), _files(target.parent)) == (b"new" * 1_000_000, ["last.ckpt"])


@pytest.mark.parametrize("error", [KeyError("step"), KeyboardInterrupt()])
def test_exception_leaves_old_content(error: BaseException, target: Path) -> None:
    with pytest.raises(type(error)):
        _save(target, b"new", error)

    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


@pytest.mark.usefixtures("full_disk")
def test_full_disk_leaves_old_content(target: Path) -> None:
    """The error has errno and path."""
    with pytest.raises(OSError, match="cannot save the checkpoint, the old one is unchanged") as raised:
        _save(target, bytes(1 << 22))

    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(target))
    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


@pytest.mark.usefixtures("full_disk")
def test_replaced_exception_does_not_hide_the_reason(target: Path) -> None:
    """Torch's writer raises another exception instead."""

    def save() -> None:
        with atomic_write(target) as file:
            try:
                file.write(bytes(1 << 22))
            except OSError:
                raise RuntimeError("unexpected pos") from None

    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        save()


@pytest.mark.usefixtures("full_disk")
def test_failure_of_last_flush_is_an_error(target: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        _save(target, bytes(100_000))

    assert target.read_text() == "old"


@pytest.mark.skipif(os.geteuid() == 0, reason="Requires: a user without root permissions")
def test_read_only_folder(target: Path) -> None:
    target.parent.chmod(0o500)

    with pytest.raises(PermissionError, match="cannot save the checkpoint"):
        _save(target, b"new")


@pytest.mark.parametrize(("name", "error"), [("no/file", FileNotFoundError), ("", IsADirectoryError)])
def test_missing_folder_or_sharded_checkpoint_is_an_error(name: str, error: type[OSError], tmp_path: Path) -> None:
    with pytest.raises(error, match="cannot save the checkpoint"):
        _save(tmp_path / name, b"new")


def test_new_file_follows_umask(tmp_path: Path, umask: int) -> None:
    _save(tmp_path / "new.ckpt", b"new")

    assert stat.S_IMODE((tmp_path / "new.ckpt").stat().st_mode) == 0o666 & ~umask


def test_replaced_file_keeps_its_mode(target: Path) -> None:
    target.chmod(0o664)

    _save(target, b"new")

    assert stat.S_IMODE(target.stat().st_mode) == 0o664


@pytest.mark.parametrize("to", ["last.ckpt", "removed.ckpt"])
def test_symlink_is_replaced(to: str, target: Path) -> None:
    """`last.ckpt` may link to the best checkpoint, which must stay."""
    link = target.with_name("link.ckpt")
    link.symlink_to(to)

    _save(link, b"new")

    assert (link.is_symlink(), link.read_text(), target.read_text()) == (False, "new", "old")
    assert _files(target.parent) == ["last.ckpt", "link.ckpt"]


def test_pipe_is_written_to(tmp_path: Path) -> None:
    """Devices such as /dev/null must not be replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _save(pipe, b"new")
    content = os.read(reader, 10)
    os.close(reader)

    assert (content, stat.S_ISFIFO(pipe.stat().st_mode)) == (b"new", True)


def test_stale_files_are_removed(target: Path) -> None:
    """A killed process leaves its temporary file unlocked; other hidden files stay."""
    for name in (".hpu-core-0123456789abcdef.partial", ".keep.partial"):
        (target.parent / name).touch()

    _save(target, b"new")

    assert _files(target.parent) == [".keep.partial", "last.ckpt"]


def test_last_of_two_writers_wins(target: Path) -> None:
    """The second does not take the first one's file for a stale one."""
    with atomic_write(target) as first:
        first.write(b"1" * 100)
        with atomic_write(target) as second:
            second.write(b"2" * 50)

    assert target.read_bytes() == b"1" * 100


def test_file_removed_before_lock_is_recreated(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove the new file as stale before it is locked."""
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


def test_file_system_without_locks(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale files stay, because an active writer cannot be detected."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    stale = target.parent / ".hpu-core-0123456789abcdef.partial"
    stale.touch()
    monkeypatch.setattr(fcntl, "flock", no_locks)

    _save(target, b"new")

    assert (target.read_text(), _files(target.parent)) == ("new", [stale.name, "last.ckpt"])


def test_order_of_sync_and_rename(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure leaves the old file or the new one."""
    operations: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        operations.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def replace(self: Path, to: Path) -> Path:
        operations.append("rename")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)

    _save(target, b"new")

    assert operations == ["sync file", "rename", "sync folder"]
