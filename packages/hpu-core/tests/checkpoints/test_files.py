"""Tests of replacing a file atomically."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from hpu_core.checkpoints.files import atomic_write


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file with the content "old", alone in its folder."""
    target = tmp_path / "last.ckpt"
    target.write_text("old")
    return target


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


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("size", [1 << 22, 100_000], ids=["while it is written", "at the last flush"])
def test_full_disk_leaves_old_content(size: int, target: Path) -> None:
    """The error has errno and path."""
    with pytest.raises(OSError, match="cannot save the checkpoint, the old one is unchanged") as raised:
        _save(target, bytes(size))

    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(target))
    assert (target.read_text(), _files(target.parent)) == ("old", ["last.ckpt"])


@pytest.mark.skipif(os.geteuid() == 0, reason="Requires: a user without root permissions")
def test_read_only_folder(target: Path) -> None:
    target.parent.chmod(0o500)

    with pytest.raises(PermissionError, match="cannot save the checkpoint"):
        _save(target, b"new")


@pytest.mark.parametrize(("name", "error"), [("no/file", FileNotFoundError), ("", IsADirectoryError)])
def test_missing_folder_or_sharded_checkpoint_is_an_error(name: str, error: type[OSError], tmp_path: Path) -> None:
    with pytest.raises(error, match="cannot save the checkpoint"):
        _save(tmp_path / name, b"new")


@pytest.mark.parametrize("name", ["new.ckpt", "last.ckpt"])
def test_mode_follows_umask(name: str, target: Path) -> None:
    """As with Lightning, also where a file is replaced."""
    target.chmod(0o600)
    before = os.umask(0o026)
    _save(target.with_name(name), b"new")
    os.umask(before)

    assert stat.S_IMODE(target.with_name(name).stat().st_mode) == 0o666 & ~0o026


def test_pipe_is_written_to(tmp_path: Path) -> None:
    """Devices such as /dev/null must not be replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _save(pipe, b"new")
    content = os.read(reader, 10)
    os.close(reader)

    assert (content, stat.S_ISFIFO(pipe.stat().st_mode)) == (b"new", True)


@pytest.mark.parametrize("has_locks", [True, False])
def test_stale_files_are_removed(has_locks: bool, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their process has exited, which nothing tells without locks; other hidden files stay."""
    names = [".hpu-core-0123456789abcdef.partial", ".keep.partial"]
    for name in names:
        (target.parent / name).touch()
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOLCK, "no locks")))

    _save(target, b"new")

    assert (target.read_text(), _files(target.parent)) == ("new", [*names[has_locks:], "last.ckpt"])


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


def test_order_of_sync_and_rename(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure leaves the old file or the new one: the file is flushed first, and the folder last."""
    operations: list[str] = []
    rename = Path.replace

    def replace(self: Path, to: Path) -> Path:
        operations.append("rename")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", lambda number: operations.append(str(stat.S_ISDIR(os.fstat(number).st_mode))))
    monkeypatch.setattr(Path, "replace", replace)

    _save(target, b"new")

    assert operations == ["False", "rename", "True"]
