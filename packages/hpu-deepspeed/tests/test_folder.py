"""A folder that takes its place when it is whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_deepspeed import _folder


def _nothing() -> None:
    """Wait for no other rank."""


def _write(path: Path, text: str) -> None:
    with _folder.replacing(path, 0, 0, _nothing) as partial:
        partial.mkdir()
        (partial / "weights").write_text(text)


def _fail(path: Path) -> None:
    with _folder.replacing(path, 0, 0, _nothing) as partial:
        partial.mkdir()
        (partial / "shard").write_text("half")
        raise OSError("disk is full")


def _read(path: Path) -> str:
    return (_folder.present(path) / "weights").read_text()


@pytest.fixture(params=["exchange", "no exchange"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target, on a file system that can exchange two names and on one that cannot."""
    if request.param == "no exchange":
        monkeypatch.setattr(_folder, "_exchange", lambda *_: False)
    return tmp_path / "deep" / "last.ckpt"


def test_a_folder_is_written(path: Path) -> None:
    """With the folder that it lies in."""
    _write(path, "new")

    assert _read(path) == "new"


def test_a_folder_is_replaced(path: Path) -> None:
    """What was there is gone, and nothing else is left."""
    _write(path, "old")
    _write(path, "new")

    assert _read(path) == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_replaced(path: Path) -> None:
    """As with a checkpoint of another strategy."""
    path.parent.mkdir()
    path.write_text("one file")
    _write(path, "new")

    assert _read(path) == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(path: Path) -> None:
    """Lightning links the last checkpoint to another one, which must stay."""
    other = path.parent / "best.ckpt"
    _write(other, "best")
    path.symlink_to(other)
    _write(path, "new")

    assert (_read(path), _read(other)) == ("new", "best")


def test_a_failure_leaves_what_was_there(path: Path) -> None:
    """A rank that fails while it writes spoils nothing."""
    _write(path, "old")
    with pytest.raises(OSError, match="disk is full"):
        _fail(path)

    assert _read(path) == "old"


def test_what_a_failure_left_is_removed_with_the_next(path: Path) -> None:
    """The next checkpoint of the name has nothing of it."""
    with pytest.raises(OSError, match="disk is full"):
        _fail(path)
    _write(path, "new")

    assert [file.name for file in path.iterdir()] == ["weights"]
    assert list(path.parent.iterdir()) == [path]


def test_what_is_not_whole_has_no_name_of_a_checkpoint(path: Path) -> None:
    """Lightning looks for the last checkpoint by its name."""
    with _folder.replacing(path, 0, 0, _nothing) as partial:
        partial.mkdir()

        assert "last" not in partial.name
        assert partial.suffix != ".ckpt"


class _Killed(BaseException):
    """Stands for the end of the process."""


def _dying(call: int) -> Callable[[Path, Path], Path]:
    """Return `Path.rename` for a process that is killed at a call."""
    rename, calls = Path.rename, []

    def dying(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == call:
            raise _Killed
        return rename(self, target)

    return dying


@pytest.mark.parametrize("call", [1, 2, 3])
def test_whenever_it_is_killed_there_is_a_whole_one(call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two steps of replacing, where names cannot be exchanged, the old one is found where it went."""
    path = tmp_path / "last.ckpt"
    _write(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(_folder, "_exchange", lambda *_: False)
        patch.setattr(Path, "rename", _dying(call))
        with pytest.raises(_Killed):
            _write(path, "new")

    assert _read(path) == "old"


def test_ranks_of_one_machine_put_it_in_place_once(tmp_path: Path) -> None:
    """The second rank neither clears what the first has written nor moves anything."""
    path = tmp_path / "last.ckpt"
    with _folder.replacing(path, 0, 0, _nothing) as partial:
        partial.mkdir()
        (partial / "first").touch()
        with _folder.replacing(path, 1, 1, _nothing) as same:
            (same / "second").touch()

    assert sorted(file.name for file in path.iterdir()) == ["first", "second"]


def test_a_machine_that_shares_the_folder_touches_nothing(tmp_path: Path) -> None:
    """What the first machine has put in place stays, whatever a file system says that is late."""
    path = tmp_path / "last.ckpt"
    _write(path, "new")

    with _folder.replacing(path, 8, 0, _nothing):
        pass

    assert _read(path) == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_machine_that_shares_no_folder_puts_its_own_in_place(tmp_path: Path) -> None:
    """Its first rank does what rank 0 does on another."""
    path = tmp_path / "last.ckpt"
    with _folder.replacing(path, 8, 0, _nothing) as partial:
        partial.mkdir()

    assert path.is_dir()
