"""Tests of checkpoints that are folders: what saves have written is replaced, and everything else stays."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hpu_core.checkpoints import folders
from hpu_core.checkpoints.files import PREFIX, locked
from hpu_testing.kills import end_before_change, is_killed, kills

TORCH = (".metadata", "meta.pt", "__0_0.distcp", "__1_0.distcp", ".hpu-core-save")
# Of a save with fewer ranks.
NEW_TORCH = (".metadata", "meta.pt", "__0_0.distcp", ".hpu-core-save")
DEEPSPEED = ("latest", "zero_to_fp32.py", "checkpoint/mp_rank_00_model_states.pt", ".hpu-core-save")
SAVE_ID = "b7"
OTHERS = ("tokenizer.json", "logs/metrics.csv", "checkpoint/notes.txt", "__0_0.distcp.bak")


def _write(folder: Path, names: tuple[str, ...], text: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _stage(path: Path, names: tuple[str, ...], text: str, *, save_id: str = SAVE_ID) -> Path:
    """Return a complete stage, inside of a checkpoint or beside it."""
    return _write(folders.stage(path if folders.is_folder(path) else path.parent, save_id), names, text)


def _save(path: Path, names: tuple[str, ...] = TORCH, text: str = "new") -> None:
    folders.commit(_stage(path, names, text), path)


def _content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a checkpoint."""
    return tmp_path / "last.ckpt"


def _missing(path: Path) -> None:
    """Leave nothing at a path."""


def _linked(path: Path) -> None:
    _write(path.with_name("best.ckpt"), TORCH, "best")
    path.symlink_to("best.ckpt")


@pytest.mark.parametrize(
    "prepare",
    [_missing, Path.mkdir, lambda path: path.write_text("file"), _linked, lambda path: _write(path, DEEPSPEED[:3], "")],
    ids=["nothing", "an empty folder", "a file", "Lightning's link", "a checkpoint"],
)
def test_a_folder_replaces(prepare: Callable[[Path], Any], path: Path) -> None:
    """Nothing else remains beside it but what was there."""
    prepare(path)
    others = {other: _content(other) for other in path.parent.iterdir() if other != path}

    _save(path)

    assert folders.is_folder(path)
    assert _content(path) == dict.fromkeys(sorted(TORCH), "new")
    assert {other: _content(other) for other in path.parent.iterdir() if other != path} == others


def test_a_file_replaces_a_folder(path: Path) -> None:
    _write(path, TORCH, "old")
    new = path.with_name("new")
    new.write_text("one file")

    folders.commit(new, path)

    assert path.read_text() == "one file"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("old", [(), TORCH, DEEPSPEED])
@pytest.mark.parametrize("new", [NEW_TORCH, DEEPSPEED])
def test_files_of_others_stay(old: tuple[str, ...], new: tuple[str, ...], tmp_path: Path) -> None:
    """Files of saves that the new one has not written are gone, such as those of more ranks."""
    _write(tmp_path, OTHERS, "mine")
    _write(tmp_path, old, "old")

    _save(tmp_path, new)

    assert _content(tmp_path) == dict(sorted({**dict.fromkeys(OTHERS, "mine"), **dict.fromkeys(new, "new")}.items()))


def test_a_folder_with_the_name_of_a_file_stays(tmp_path: Path) -> None:
    _write(tmp_path, (*TORCH[:1], "meta.pt/mine.txt"), "old")

    with pytest.raises(IsADirectoryError, match="a file of the checkpoint has the name of a folder"):
        _save(tmp_path)

    assert _content(tmp_path)["meta.pt/mine.txt"] == _content(tmp_path)[".metadata"] == "old"


@pytest.mark.parametrize(
    ("names", "expected"),
    [(TORCH, None), (DEEPSPEED, None), ((*TORCH, *OTHERS), "__0_0.distcp.bak"), (OTHERS[:1],) * 2],
)
def test_file_that_no_save_has_written(names: tuple[str, ...], expected: Any, tmp_path: Path) -> None:
    assert folders.foreign_file(_write(tmp_path, names, "")) == (
        expected[0] if isinstance(expected, tuple) else expected
    )


@pytest.mark.parametrize(
    ("link", "target"), [("best.ckpt", "run/last.ckpt"), ("../disk/run", "disk/run"), ("{}/disk/run", "disk/run")]
)
def test_links_to_another_folder_are_followed(link: str, target: str, tmp_path: Path) -> None:
    """A link to something in the same folder is Lightning's, from the last checkpoint to the best one."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "last.ckpt"
    path.symlink_to(link.format(tmp_path))

    assert folders.follow(path) == tmp_path / target


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TORCH, NEW_TORCH),
        pytest.param(DEEPSPEED, DEEPSPEED, marks=pytest.mark.slow),
        pytest.param(DEEPSPEED, TORCH, marks=pytest.mark.slow),
        pytest.param(TORCH, DEEPSPEED, marks=pytest.mark.slow),
    ],
)
def test_kills_leave_one_checkpoint(
    old: tuple[str, ...], new: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, int], None]
) -> None:
    """Before it is taken up, no reader finds files of two saves; afterwards, one is complete. Others' files stay."""
    path = tmp_path / "last.ckpt"

    def prepare() -> None:
        folders.remove(path)
        _write(path, OTHERS, "mine")
        _write(path, old, "old")
        _stage(path, new, "new")

    def save() -> None:
        folders.commit(folders.stage(path, SAVE_ID), path)

    count = 0
    for number in kills(prepare, save):
        in_place = {text for name, text in _content(path).items() if not name.startswith(PREFIX)}
        assert in_place != {"old", "new", "mine"}
        # Each second kill is while what the first has left is taken up.
        count += 1 + is_killed(partial(end_before_change, number // 2), lambda: folders.take_up(path))
        folders.take_up(path)
        folders.remove(folders.stage(path, SAVE_ID))
        content = _content(path)
        assert {name: content.pop(name) for name in OTHERS} == dict.fromkeys(OTHERS, "mine")
        assert content in (dict.fromkeys(sorted(old), "old"), dict.fromkeys(sorted(new), "new"))
    assert count >= len(old) + len(new)
    record_property("kills", count)


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("old", ["file", "link"])
def test_a_kill_between_two_renames_does_not_hide_the_last_checkpoint(
    old: str, path: Path, record_property: Callable[[str, int], None]
) -> None:
    """Lightning finds `last*.ckpt` where `ckpt_path="last"` is given."""

    def prepare() -> None:
        for entry in path.parent.iterdir():
            folders.remove(entry)
        if old == "file":
            path.write_text("old")
        else:
            path.with_name("best.ckpt").write_text("old")
            path.symlink_to("best.ckpt")
        _stage(path, TORCH, "new")

    def text(found: Path) -> str:
        return found.read_text() if found.is_file() else (found / ".metadata").read_text()

    count = 0
    for _ in kills(prepare, lambda: folders.commit(folders.stage(path.parent, SAVE_ID), path)):
        last = max(path.parent.glob("last*.ckpt"), key=lambda found: found.lstat().st_mtime_ns)
        assert text(last) in {"old", "new"}
        folders.take_up(path)
        assert text(path) in {"old", "new"}
        count += 1
    assert count > 2
    record_property("kills", count)


@pytest.mark.usefixtures("forks")
def test_a_stage_is_removed_once_its_writer_has_exited(tmp_path: Path) -> None:
    stages = [_stage(tmp_path, TORCH, "", save_id=save_id) for save_id in ("killed", "written", "own")]
    with (stages[1] / folders.RECORD).open("rb+") as record:
        fcntl.flock(record, fcntl.LOCK_EX)
        folders.remove_stale_stages(tmp_path, keep=stages[2])

    assert [stage.exists() for stage in stages] == [False, True, True]


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOLCK, "no locks")))


@pytest.mark.usefixtures("no_locks")
def test_a_stage_without_locks_is_named(tmp_path: Path) -> None:
    """Its writer may be alive."""
    stage = _stage(tmp_path, TORCH, "")

    with pytest.warns(UserWarning, match=f"'{stage}' may be of a killed save: this file system has no locks"):
        folders.remove_stale_stages(tmp_path, keep=tmp_path)

    assert stage.exists()


@pytest.mark.usefixtures("no_locks")
def test_a_commit_without_locks_is_completed_once_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as files move, another process is at it."""
    ready = _write(tmp_path / ".hpu-core-ready", TORCH, "new")
    _write(tmp_path, TORCH[:2], "old")
    others = iter(TORCH[:2])

    def move(seconds: float) -> None:
        assert seconds > 60
        assert ready.is_dir()
        if name := next(others, None):
            (tmp_path / ".hpu-core-old").mkdir(exist_ok=True)
            (tmp_path / name).rename(tmp_path / ".hpu-core-old" / name)

    monkeypatch.setattr(time, "sleep", move)
    with pytest.warns(UserWarning, match="interrupted in .* completed once nothing has moved there for 120 s"):
        folders.take_up(tmp_path)

    assert next(others, None) is None
    assert _content(tmp_path) == dict.fromkeys(sorted(TORCH), "new")


@pytest.mark.usefixtures("forks")
def test_a_commit_of_a_live_process_is_waited_for(tmp_path: Path) -> None:
    _write(tmp_path, TORCH, "old")
    _write(tmp_path / ".hpu-core-ready", TORCH, "new")
    with (tmp_path / folders.RECORD).open("rb+") as record:
        fcntl.flock(record, fcntl.LOCK_EX)
        child = os.fork()
        if not child:
            record.close()
            folders.take_up(tmp_path)
            os._exit(0)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        assert (tmp_path / ".metadata").read_text() == "old"
    os.waitpid(child, 0)

    assert _content(tmp_path) == dict.fromkeys(sorted(TORCH), "new")


@pytest.mark.usefixtures("forks")
def test_a_replacement_of_a_live_process_is_waited_for(path: Path) -> None:
    path.write_text("old")
    _write(path.parent / "ready", TORCH, "new").rename(folders._ready_beside(path))
    descriptor = os.open(path.parent, os.O_RDONLY)
    with locked(descriptor):
        child = os.fork()
        if not child:
            os.close(descriptor)
            folders.take_up(path)
            os._exit(0)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        assert path.read_text() == "old"
    os.waitpid(child, 0)

    assert _content(path) == dict.fromkeys(sorted(TORCH), "new")


def test_machines_that_share_a_file_system_commit_once(path: Path) -> None:
    _save(path)

    with pytest.raises(FileNotFoundError):
        folders.commit(folders.stage(path, SAVE_ID), path)

    assert _content(path) == dict.fromkeys(sorted(TORCH), "new")


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_what_another_machine_has_committed_is_taken_up(where: str, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    if where == "inside":
        _write(path, TORCH, "old")
    _stage(path, TORCH, "new")

    folders.take_up_as(path, "another")
    assert set(_content(path).values()) != {"new"}
    folders.take_up_as(path, SAVE_ID)

    assert _content(path) == dict.fromkeys(sorted(TORCH), "new")


@pytest.mark.parametrize(("number", "is_loss"), [(errno.EINVAL, False), (errno.ENOSYS, False), (errno.EIO, True)])
def test_file_systems_that_refuse_to_flush(
    number: int, is_loss: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk is one of the save."""
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(number, "refused")))
    stage = _stage(tmp_path, TORCH, "new")

    with pytest.raises(OSError, match="refused") if is_loss else contextlib.nullcontext():
        folders.flush_tree(stage)
