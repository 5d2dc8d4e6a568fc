"""Tests of atomic directory replacement."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hpu_core import atomic_dir


def _no_barrier() -> None:
    """Return at once; the test is the only rank."""


def _write(path: Path, text: str) -> None:
    with atomic_dir.atomic_dir(path, 0, 0, _no_barrier) as partial:
        partial.mkdir()
        (partial / "weights").write_text(text)


def _save(path: Path, tensor: torch.Tensor) -> None:
    with atomic_dir.atomic_dir(path, 0, 0, _no_barrier) as partial:
        partial.mkdir()
        torch.save(tensor, partial / "shard")


def _fail(path: Path) -> None:
    with atomic_dir.atomic_dir(path, 0, 0, _no_barrier) as partial:
        partial.mkdir()
        (partial / "shard").write_text("half")
        raise OSError("disk is full")


def _read(path: Path) -> str:
    return (atomic_dir.resolve(path) / "weights").read_text()


@pytest.fixture(params=["exchange", "no exchange"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a path on a file system with atomic exchange, and on one without."""
    if request.param == "no exchange":
        monkeypatch.setattr(atomic_dir, "_exchange", lambda *_: False)
    return tmp_path / "deep" / "last.ckpt"


def test_directory_and_parent_are_created(path: Path) -> None:
    _write(path, "new")

    assert _read(path) == "new"


def test_directory_is_replaced(path: Path) -> None:
    """No other files remain in the parent directory."""
    _write(path, "old")
    _write(path, "new")

    assert _read(path) == "new"
    assert list(path.parent.iterdir()) == [path]


def test_file_is_replaced(path: Path) -> None:
    """Another strategy may have saved its checkpoint as a file."""
    path.parent.mkdir()
    path.write_text("one file")
    _write(path, "new")

    assert _read(path) == "new"
    assert list(path.parent.iterdir()) == [path]


def test_symbolic_link_is_replaced_without_following_it(path: Path) -> None:
    """Lightning may link the last checkpoint to another one, which must remain."""
    other = path.parent / "best.ckpt"
    _write(other, "best")
    path.symlink_to(other)
    _write(path, "new")

    assert (_read(path), _read(other)) == ("new", "best")


def test_failure_keeps_previous_content(path: Path) -> None:
    _write(path, "old")
    with pytest.raises(OSError, match="disk is full"):
        _fail(path)

    assert _read(path) == "old"


def test_next_write_removes_partial_content(path: Path) -> None:
    with pytest.raises(OSError, match="disk is full"):
        _fail(path)
    _write(path, "new")

    assert [file.name for file in path.iterdir()] == ["weights"]
    assert list(path.parent.iterdir()) == [path]


def test_partial_directory_is_not_named_like_a_checkpoint(path: Path) -> None:
    """Lightning finds the last checkpoint by its name."""
    with atomic_dir.atomic_dir(path, 0, 0, _no_barrier) as partial:
        partial.mkdir()

        assert "last" not in partial.name
        assert partial.suffix != ".ckpt"


class _Killed(BaseException):
    """Simulated death of the process."""


def _kill_at(call: int) -> Callable[[Path, Path], Path]:
    """Return a `Path.rename` that raises `_Killed` at the given call."""
    rename, calls = Path.rename, []

    def rename_or_die(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == call:
            raise _Killed
        return rename(self, target)

    return rename_or_die


@pytest.mark.parametrize("call", [1, 2, 3])
def test_previous_content_survives_a_kill(call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without atomic exchange, `resolve` finds the previous content between the two renames."""
    path = tmp_path / "last.ckpt"
    _write(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_dir, "_exchange", lambda *_: False)
        patch.setattr(Path, "rename", _kill_at(call))
        with pytest.raises(_Killed):
            _write(path, "new")

    assert _read(path) == "old"


def test_ranks_of_one_host_commit_once(tmp_path: Path) -> None:
    """The second rank neither clears nor moves the partial directory."""
    path = tmp_path / "last.ckpt"
    with atomic_dir.atomic_dir(path, 0, 0, _no_barrier) as partial:
        partial.mkdir()
        (partial / "first").touch()
        with atomic_dir.atomic_dir(path, 1, 1, _no_barrier) as same:
            (same / "second").touch()

    assert sorted(file.name for file in path.iterdir()) == ["first", "second"]


def test_second_host_with_shared_file_system_changes_nothing(tmp_path: Path) -> None:
    """The content that the first host has committed remains."""
    path = tmp_path / "last.ckpt"
    _write(path, "new")

    with atomic_dir.atomic_dir(path, 8, 0, _no_barrier):
        pass

    assert _read(path) == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_second_host_with_own_file_system_commits(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    with atomic_dir.atomic_dir(path, 8, 0, _no_barrier) as partial:
        partial.mkdir()

    assert path.is_dir()


def test_prepared_file_replaces_a_directory(tmp_path: Path) -> None:
    """A checkpoint in one file replaces a sharded one."""
    path = tmp_path / "last.ckpt"
    path.mkdir()
    (path / "weights").write_text("old")

    partial = atomic_dir.prepare(path, 0, _no_barrier)
    partial.write_text("new")
    atomic_dir.commit(partial, path)

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_full_file_system_is_named(tmp_path: Path) -> None:
    """The error of torch's writer is "unexpected pos"."""
    path = tmp_path / "last.ckpt"
    _write(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="old one is unchanged: File too large") as caught:
            _save(path, torch.zeros(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.filename == str(path)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert _read(path) == "old"


def test_error_while_the_file_system_takes_data_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), atomic_dir.atomic_dir(tmp_path / "a", 0, 0, _no_barrier):
        raise RuntimeError("shapes differ")
