"""What happens to a checkpoint that is a folder, by whatever saves it: the rows of a table."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hpu_core.checkpoints import saves
from hpu_testing.kills import limited_files

Save = Callable[["Path | str"], object]


TABLE = {
    "memory": ("a local folder of this name", "ValueError"),
    "file": ("a local folder of this name", "written"),
    "a link to elsewhere": ("followed", "followed"),
    "a link to the best": ("the best is written to", "replaced"),
    "a file in the way": ("replaced", "replaced"),
    "more ranks before": ("its shards stay", "its shards are removed"),
    "files of others": ("stay", "stay"),
    "a full disk": ("an error, the old one is lost", "an error, the old one stays"),
}
"""What is right: by Lightning's method, and here."""


def outcomes(lightnings: Save, here: Save, shard: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Save into a folder of its own for each situation of `TABLE`, and return what has become of it.

    Args:
        lightnings: Function that saves a checkpoint of several files by Lightning's method.
        here: The same, by ours.
        shard: Name of a file that an earlier save with more ranks has left.
        folder: An empty folder.
    """
    found: dict[str, tuple[str, ...]] = dict.fromkeys(_SITUATIONS, ())
    for save, (name, happen) in itertools.product((lightnings, here), _SITUATIONS.items()):
        root = folder / str(len(found[name])) / name
        root.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            found[name] += (happen(save, root / "run", shard),)
    return found  # type: ignore[return-value] # Two each.


@contextlib.contextmanager
def held_writes() -> Iterator[threading.Event]:
    """Let asynchronous saves write once the event is set."""
    event, write = threading.Event(), saves.write_and_commit

    def write_later(*args: Any) -> None:
        assert event.wait(60)
        write(*args)

    with mock.patch.object(saves, "write_and_commit", write_later):
        yield event


def _attempt(save: Save, path: "Path | str") -> str:
    """Save, and return the name of the error, "" without one."""
    try:
        save(path)
    except BaseException as error:  # noqa: BLE001 - torch's CheckpointException is no Exception.
        return type(error).__name__
    return ""


def _url(protocol: str) -> Callable[[Save, Path, str], str]:
    def happen(save: Save, path: Path, _: str) -> str:
        error = _attempt(save, f"{protocol}://{path}")
        if path.exists():
            return "written"
        return error or ("a local folder of this name" if Path(f"{protocol}:").is_dir() else "nothing")

    return happen


def _link_elsewhere(save: Save, path: Path, _: str) -> str:
    disk = path.parent.with_name("disk")
    disk.mkdir()
    path.symlink_to(disk)
    return _attempt(save, path) or ("followed" if path.is_symlink() and any(path.iterdir()) else "replaced")


def _lightnings_link(save: Save, path: Path, _: str) -> str:
    best = path.with_name("best")
    save(best)
    before = _content(best)
    path.symlink_to("best")
    error = _attempt(save, path)
    return error or ("replaced" if _content(best) == before and not path.is_symlink() else "the best is written to")


def _file_in_the_way(save: Save, path: Path, _: str) -> str:
    path.write_text("one file")
    return _attempt(save, path) or "replaced"


def _more_ranks(save: Save, path: Path, shard: str) -> str:
    save(path)
    (path / shard).touch()
    return _attempt(save, path) or ("its shards stay" if (path / shard).exists() else "its shards are removed")


def _others(save: Save, path: Path, _: str) -> str:
    (path / "logs").mkdir(parents=True)
    names = ("tokenizer.json", "logs/metrics.csv")
    for name in names:
        (path / name).write_text("mine")
    error = _attempt(save, path)
    return error or ("stay" if all((path / name).exists() for name in names) else "removed")


def _full_disk(save: Save, path: Path, _: str) -> str:
    save(path)
    before = _content(path)
    with limited_files(max(map(len, before.values())) // 2):
        error = _attempt(save, path)
    return f"{'an error' if error else 'silent'}, the old one {'stays' if _content(path) == before else 'is lost'}"


def _content(folder: Path) -> dict[str, Any]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


_SITUATIONS: dict[str, Callable[[Save, Path, str], str]] = {
    "memory": _url("memory"),
    "file": _url("file"),
    "a link to elsewhere": _link_elsewhere,
    "a link to the best": _lightnings_link,
    "a file in the way": _file_in_the_way,
    "more ranks before": _more_ranks,
    "files of others": _others,
    "a full disk": _full_disk,
}
